# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""kube-scheduler: binds the Pods that name it to Nodes where they fit.

It knows selectors and affinities of Nodes, taints, resources and host ports; of Nodes that fit it takes the
one with the fewest Pods. It preempts nobody.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

from sunk_kube.quantity import largest, number, total
from sunk_simulation.kubernetes import pods
from sunk_simulation.kubernetes.controller import Controller
from sunk_simulation.kubernetes.kinds import NODES, PODS, Object
from sunk_simulation.kubernetes.selectors import holds
from sunk_simulation.kubernetes.store import Change, Stored

NAME: Final = "default-scheduler"
AGAIN_S: Final = 30.0
_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Scheduler(Controller):
    """That of the cluster."""

    name = NAME

    def all(self) -> Iterable[str]:
        """Return the Pods that wait."""
        return [key for key, one in sorted(self.store.of(PODS.resource).items()) if _waits(one)]

    def keys(self, change: Change) -> Iterable[str]:
        """Return the Pod; all that wait, where there may be room now."""
        if change.resource == PODS.resource and _waits(change.after) and change.type != "DELETED":
            return (change.key,)
        is_node = change.resource == NODES.resource
        makes_room = change.resource == PODS.resource and change.type == "DELETED"
        return self.all() if is_node or makes_room else ()

    def sync(self, key: str) -> float | None:
        """Bind it, or say why not."""
        found = self.store.get(PODS.resource, key)
        if found is None or not _waits(found):
            return None
        nodes = sorted(self.store.of(NODES.resource).items())
        there: dict[str, list[Stored]] = {name: [] for name, _ in nodes}
        for one in self.store.of(PODS.resource).values():
            node = one.object["spec"].get("nodeName")
            if node in there and not pods.is_over(one.object):
                there[node].append(one)
        unfit = {name: list(_unfit(found.object, node.object, there[name])) for name, node in nodes}
        fitting = [name for name, reasons in unfit.items() if not reasons]
        if not fitting:
            why = ", ".join(sorted({reason for reasons in unfit.values() for reason in reasons}))
            self._say(key, f"0/{len(nodes)} nodes are available: {why}.")
            return AGAIN_S
        node = min(fitting, key=lambda name: len(there[name]))
        binding: Object = {"metadata": {"uid": found.meta["uid"]}, "target": {"name": node}}
        self.registry.update(PODS, key, lambda pod: pods.bound(pod, binding), subresource="binding")
        return None

    def _say(self, key: str, message: str) -> None:
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}

        def change(pod: Object) -> Object:
            pods.set_condition(pod, said)
            return pod

        self.registry.update(PODS, key, change, manager=self.name, subresource="status", is_patch=True)


def _waits(found: Stored) -> bool:
    spec = found.object["spec"]
    is_ours = (
        spec.get("schedulerName") == NAME and not spec.get("nodeName") and not spec.get("schedulingGates")
    )
    return is_ours and "deletionTimestamp" not in found.meta and not pods.is_over(found.object)


def _unfit(pod: Object, node: Object, there: list[Stored]) -> Iterator[str]:
    """Yield what keeps a Pod off a Node, in kube-scheduler's words."""
    spec = pod["spec"]
    labels: Object = node["metadata"].get("labels") or {}
    selects = all(labels.get(name) == value for name, value in (spec.get("nodeSelector") or {}).items())
    if not selects or not fits_affinity(pod, node):
        yield "node(s) didn't match Pod's node affinity/selector"
    for taint in pods.unborne(pod, node["spec"].get("taints") or [], "NoSchedule", "NoExecute"):
        yield f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    unschedulable = [{"key": pods.UNSCHEDULABLE, "effect": "NoSchedule"}]
    if node["spec"].get("unschedulable") and pods.unborne(pod, unschedulable, "NoSchedule"):
        yield "node(s) were unschedulable"
    if _ports(pod) & set[tuple[int, str]]().union(*(_ports(one.object) for one in there)):
        yield "node(s) didn't have free ports for the requested pod ports"
    yield from (f"Insufficient {name}" for name in lacking(pod, node, there))


def fits_affinity(pod: Object, node: Object) -> bool:
    """Whether a Pod's affinity lets it run on a Node."""
    affinity: Object = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    if not affinity.get(_TERMS):
        return True
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in affinity[_TERMS]["nodeSelectorTerms"]:
        expressions, names = term.get("matchExpressions") or [], term.get("matchFields") or []
        if (expressions or names) and (
            all(holds(one, labels) for one in expressions) and all(holds(one, fields) for one in names)
        ):
            return True
    return False


def lacking(pod: Object, node: Object, there: list[Stored]) -> list[str]:
    """Return the resources of which a Node has too little for one more Pod."""
    room: Object = node["status"].get("allocatable") or {}
    asked = requests(pod)
    return [
        name
        for name, amount in asked.items()
        if amount and _used(name, there) + amount > number(room.get(name, "0"))
    ]


def _used(name: str, there: list[Stored]) -> Decimal:
    return sum((requests(one.object).get(name, Decimal(0)) for one in there), Decimal(0))


def requests(pod: Object) -> dict[str, Decimal]:
    """Return what a Pod asks for."""
    spec = pod["spec"]
    containers, inits = ([*(spec.get(name) or ())] for name in ("containers", "initContainers"))
    sidecars = [one for one in inits if one.get("restartPolicy") == "Always"]
    first = [one for one in inits if one.get("restartPolicy") != "Always"]
    asked = [(one.get("resources") or {}).get("requests") or {} for one in [*containers, *sidecars]]
    most = largest(
        [total(asked), *(total([(one.get("resources") or {}).get("requests") or {}]) for one in first)]
    )
    return {**most, "pods": Decimal(1)}


def _ports(pod: Object) -> set[tuple[int, str]]:
    return {
        (port["hostPort"], port.get("protocol") or "TCP")
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }
