"""NetworkPolicies as nftables rules, for the lab's network plugins know none.

`ruleset` is of a moment: it lets pass what the policies let pass between the Pods that are there now. Nothing
follows what changes afterwards: a Pod that is made later is a stranger to all, and open to all.

Source: Kubernetes' concepts/services-networking/network-policies, "Behavior of to and from selectors".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sunk_lab.errors import LabError

TABLE: Final = "sunk_lab_policies"

Object = dict[str, Any]
"""As the API server writes it; Kubernetes' own schema is its type."""


def ruleset(policies: Sequence[Object], pods: Iterable[Object], namespaces: Iterable[Object]) -> str:
    """Return the nftables rules, which every Node takes; they take the place of earlier ones.

    Raises:
        LabError: A policy says something that is not translated here.
    """
    world = _World(pods, namespaces)
    chains, jumps = list[str](), list[str]()
    for number, pod in enumerate(world.pods):
        mine = [policy for policy in policies if _selects_pod(policy, pod)]
        for way, mine_at, peer_at in (("Ingress", "daddr", "saddr"), ("Egress", "saddr", "daddr")):
            lets = [policy for policy in mine if way in _ways(policy)]
            if not lets:
                continue
            rules = [rule for policy in lets for rule in world.rules(policy, way, pod, peer_at)]
            name = f"{way.lower()}_{number}"
            lines = "\n".join(f"    {rule} return" for rule in rules)
            chains.append(f"  chain {name} {{ # {_name(pod)}\n{lines}\n    counter drop\n  }}")
            jumps.append(f"    ip {mine_at} {pod['status']['podIP']} jump {name}")
    return "\n".join(
        [
            f"table inet {TABLE}",  # So that there is one to delete.
            f"delete table inet {TABLE}",
            f"table inet {TABLE} {{",
            *chains,
            "  chain forward {",
            "    type filter hook forward priority 10; policy accept;",
            "    ct state established,related accept",
            *jumps,
            "  }",
            "}",
            "",
        ]
    )


def reaches(
    policies: Sequence[Object], namespaces: Iterable[Object], source: Object, target: Object, port: str
) -> bool:
    """Return whether the policies let the Pod *source* connect to the port *port*, by its name, of *target*.

    The Pods need no addresses: address ranges of policies let none in here.
    """
    labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}
    mine = [policy for policy in policies if _selects_pod(policy, target) and "Ingress" in _ways(policy)]
    numbers = [one for one in _ports(target) if one.get("name") == port]
    open_ports = {port} | {one["containerPort"] for one in numbers}
    return not mine or any(
        _is_peer(policy, rule.get("from", ()), source, labels)
        and (not rule.get("ports") or any(one.get("port", port) in open_ports for one in rule["ports"]))
        for policy in mine
        for rule in policy["spec"].get("ingress", ())
    )


def _is_peer(
    policy: Object, peers: Sequence[Object], pod: Object, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    """Return whether *peers* of a rule mean *pod*; without peers, all are meant."""
    space = pod["metadata"]["namespace"]
    for peer in peers:
        if "ipBlock" in peer:
            continue
        selector = peer.get("namespaceSelector")
        is_there = (
            space == policy["metadata"]["namespace"]
            if selector is None
            else _matches(selector, namespaces[space])
        )
        if is_there and _matches(peer.get("podSelector", {}), pod["metadata"].get("labels", {})):
            return True
    return not peers


class _World:
    """Which Pods there are, and which of them a peer means."""

    def __init__(self, pods: Iterable[Object], namespaces: Iterable[Object]) -> None:
        self.pods = [pod for pod in pods if pod["status"].get("podIP") and not pod["spec"].get("hostNetwork")]
        self._labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}

    def rules(self, policy: Object, way: str, pod: Object, peer_at: str) -> Iterator[str]:
        """Return what *policy* lets pass one *way* of *pod*, as matches of nftables."""
        for rule in policy["spec"].get(way.lower(), ()):
            peers = rule.get("from" if way == "Ingress" else "to", ())
            found = sorted({address for peer in peers for address in self._addresses(policy, peer)})
            if peers and not found:
                continue
            who = f"ip {peer_at} {{ {', '.join(found)} }}" if peers else ""
            for port in rule.get("ports") or [None]:
                yield f"{who} {_port(port, pod, way)}".strip()

    def _addresses(self, policy: Object, peer: Object) -> Iterator[str]:
        if "ipBlock" in peer:
            if peer["ipBlock"].get("except"):
                raise LabError(f"NetworkPolicy {_name(policy)}: ipBlock.except is not translated")
            yield peer["ipBlock"]["cidr"]
            return
        spaces = {policy["metadata"]["namespace"]}
        if (selector := peer.get("namespaceSelector")) is not None:
            spaces = {name for name, labels in self._labels.items() if _matches(selector, labels)}
        for pod in self.pods:
            metadata = pod["metadata"]
            is_meant = _matches(peer.get("podSelector", {}), metadata.get("labels", {}))
            if metadata["namespace"] in spaces and is_meant:
                yield pod["status"]["podIP"]


def _ways(policy: Object) -> list[str]:
    return policy["spec"]["policyTypes"]  # The API server fills it in.


def _selects_pod(policy: Object, pod: Object) -> bool:
    metadata = pod["metadata"]
    is_here = metadata["namespace"] == policy["metadata"]["namespace"]
    return is_here and _matches(policy["spec"].get("podSelector", {}), metadata.get("labels", {}))


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    for one in selector.get("matchExpressions", ()):
        if one["operator"] != "In":
            raise LabError(f"the operator {one['operator']} of a selector is not translated")
        if labels.get(one["key"]) not in one["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def _port(port: Object | None, pod: Object, way: str) -> str:
    if port is None:
        return ""
    protocol = port.get("protocol", "TCP").lower()
    wanted = port.get("port")
    if wanted is None:
        return f"meta l4proto {protocol}"
    if "endPort" in port:
        wanted = f"{wanted}-{port['endPort']}"
    elif isinstance(wanted, str):
        if way == "Egress":
            raise LabError(f"port {wanted}: a port's name of another Pod is not translated")
        numbers = {one["containerPort"] for one in _ports(pod) if one.get("name") == wanted}
        if len(numbers) != 1:
            raise LabError(f"Pod {_name(pod)} has no port, or several, by the name {wanted}")
        (wanted,) = numbers
    return f"{protocol} dport {wanted}"


def _ports(pod: Object) -> list[Object]:
    return [one for container in _containers(pod) for one in container.get("ports", ())]


def _containers(pod: Object) -> list[Object]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]


def _name(thing: Object) -> str:
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
