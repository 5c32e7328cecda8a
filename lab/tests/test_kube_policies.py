"""NetworkPolicies as nftables rules."""

from typing import Any

import pytest

from sunk_lab.errors import LabError
from sunk_lab.kube.policies import ruleset

DATABASE: dict[str, Any] = {"app": "database"}
CLIENT: dict[str, Any] = {"app": "client"}


def pod(name: str, address: str, labels: dict[str, str], namespace: str = "here") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"ports": [{"name": "sql", "containerPort": 3306}]}]},
        "status": {"podIP": address},
    }


def policy(*ingress: dict[str, Any], ways: tuple[str, ...] = ("Ingress",), **more: Any) -> dict[str, Any]:  # noqa: ANN401 - free-form.
    spec = {"podSelector": {"matchLabels": DATABASE}, "policyTypes": list(ways), "ingress": list(ingress)}
    return {"metadata": {"name": "database", "namespace": "here"}, "spec": spec | more}


PODS = [
    pod("database", "10.0.0.1", DATABASE),
    pod("client", "10.0.0.2", CLIENT),
    pod("stranger", "10.0.0.3", CLIENT, "elsewhere"),
]
SPACES = [{"metadata": {"name": name, "labels": {"name": name}}} for name in ("here", "elsewhere")]


def rules(*policies: dict[str, Any]) -> list[str]:
    """Return the lines of the only chain of a Pod."""
    text = ruleset(policies, PODS, SPACES)
    assert text.count("jump") == 1
    body = text.partition("here/database\n")[2].partition("}\n  chain")[0]
    return [line.strip() for line in body.splitlines() if line.strip() not in ("", "}")]


def test_a_pod_is_open_to_the_pods_of_its_namespace_that_a_rule_names_on_its_ports_and_to_nobody_else() -> (
    None
):
    peer = {"podSelector": {"matchLabels": CLIENT}}

    assert rules(policy({"from": [peer], "ports": [{"port": "sql"}, {"port": 22}]})) == [
        "ip saddr { 10.0.0.2 } tcp dport 3306 return",
        "ip saddr { 10.0.0.2 } tcp dport 22 return",
        "counter drop",
    ]


def test_a_rule_without_peers_is_for_everybody_and_one_whose_peers_are_not_there_for_nobody() -> None:
    nobody = {"podSelector": {"matchLabels": {"app": "nobody"}}}

    assert rules(policy({"ports": [{"port": 22}]}, {"from": [nobody]})) == [
        "tcp dport 22 return",
        "counter drop",
    ]


def test_a_namespace_selector_means_pods_of_those_namespaces_and_a_block_its_addresses() -> None:
    there = {"matchExpressions": [{"key": "name", "operator": "In", "values": ["elsewhere"]}]}
    peers = [{"namespaceSelector": there}, {"ipBlock": {"cidr": "192.0.2.0/24"}}]

    assert rules(policy({"from": peers})) == ["ip saddr { 10.0.0.3, 192.0.2.0/24 } return", "counter drop"]


def test_what_several_policies_let_pass_adds_up() -> None:
    assert rules(policy({"ports": [{"port": 22}]}), policy({"ports": [{"port": 23}]})) == [
        "tcp dport 22 return",
        "tcp dport 23 return",
        "counter drop",
    ]


def test_egress_is_by_the_pods_own_address() -> None:
    out = {"ports": [{"port": 53, "protocol": "UDP"}]}
    text = ruleset([policy(ways=("Egress",), egress=[out])], PODS, SPACES)

    assert "ip saddr 10.0.0.1 jump egress_0" in text
    assert "udp dport 53 return" in text


def test_a_pod_that_no_policy_selects_is_open() -> None:
    assert "jump" not in ruleset([policy(podSelector={"matchLabels": {"app": "other"}})], PODS, SPACES)


def test_what_is_not_translated_is_refused() -> None:
    block = {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"]}}

    with pytest.raises(LabError, match="except"):
        rules(policy({"from": [block]}))
