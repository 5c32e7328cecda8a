"""One step that brings a NodeSet closer to what it declares; pure.

What must stay true: one Pod a Node, whatever was done half-way; a Node belongs to one NodeSet; a Pod's
name stays while its Node does; planning twice on the same view plans the same. For a template that is no
Pod's nothing is made and nobody goes; what needs no template goes on: Pods that have ended are cleared, and
those that were to be replaced may stay.
"""

from datetime import timedelta

import msgspec

from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_nodeset_controller.nodesets.eviction import cleared
from sunk_nodeset_controller.nodesets.feasibility import obstacle, requests
from sunk_nodeset_controller.nodesets.members import Member, members
from sunk_nodeset_controller.nodesets.model import CreatePod, Observed, Plan, ReleasePod, ReplacePod
from sunk_nodeset_controller.nodesets.naming import pod_name
from sunk_nodeset_controller.nodesets.rollout import LOOK_AGAIN_S, ended, failed_nodes, rollout, withdrawn
from sunk_nodeset_controller.nodesets.slices import members_of, names_of
from sunk_nodeset_controller.nodesets.template import pinned_node, pod_spec
from sunk_runtime.backoff import doubled

LAST_WAIT_S = 300.0
"""The longest that a Pod which ends again and again is not made anew."""
ORPHAN = "orphan"
"""The finalizer of a deletion that leaves the Pods alone."""


def plan(seen: Observed) -> Plan:
    """Return what to do now for one NodeSet."""
    if seen.nodeset.metadata.deletion_timestamp is not None:
        return _leaving(seen)
    if seen.refusal:
        return Plan(invalid=seen.refusal)
    found = members(seen)
    replaced, again_s = _replaced(seen)
    if seen.fits.invalid:
        actions = (*replaced, *withdrawn(seen, found))
        return Plan(actions=actions, again_s=again_s, invalid=seen.fits.invalid)
    obstacles = {
        **seen.fits.obstacles,
        **{node: f"belongs to NodeSet {key}" for node, key in seen.foreign.items()},
    }
    waiting = {node: one for node, one in seen.unread.items() if one.wait_s > 0 and node not in obstacles}
    obstacles |= {node: one.why for node, one in waiting.items()}
    feasible = frozenset(name for name in seen.nodes if name not in obstacles)
    failed, wanted = failed_nodes(seen, obstacles), wanted_size(seen, found, feasible)
    if (more := wanted_size(seen, found, feasible | failed)) == wanted:
        failed = frozenset[str]()  # There are as many Pods as shall be.
    rolled = rollout(seen, found, more)
    staying = {one.name for one in rolled.actions if isinstance(one, ReleasePod)} | rolled.waiting
    leaving = [member for member in found if member.name not in staying]
    return Plan(
        actions=(
            *replaced,
            *rolled.actions,
            *_created(seen, feasible),
            *cleared(seen, leaving),
        ),
        again_s=_soonest(found, again_s, *(one.wait_s for one in waiting.values())),
        feasible=feasible,
        obstacles=obstacles,
        failed=failed,
    )


def wanted_size(seen: Observed, found: list[Member], feasible: frozenset[str]) -> int:
    """Return how many Pods there can and shall be."""
    possible = len(feasible | {pinned_node(member.pod) for member in found})
    replicas = seen.nodeset.spec.replicas
    return possible if replicas is None else min(replicas, possible)


def _leaving(seen: Observed) -> Plan:
    """Return what to do for a NodeSet that is being deleted: its Pods go as in an update, or stay."""
    if ORPHAN in seen.nodeset.metadata.finalizers:
        return Plan(is_over=True)
    found = members(seen)
    replaced, again_s = _replaced(seen)
    return Plan(
        actions=(*replaced, *ended(seen, found)), again_s=_soonest(found, again_s), is_over=not seen.pods
    )


def _soonest(found: list[Member], *again_s: float | None) -> float | None:
    waits = [member.available_in_s for member in found]
    if any(not member.is_updated for member in found):
        waits += [member.away_in_s for member in found if member.away_in_s]
        # That Slurm can use a node does not show on its Pod.
        waits += [LOOK_AGAIN_S for member in found if member.is_updated and member.unusable]
    waits += [LOOK_AGAIN_S for member in found if member.condemned]
    return min((wait for wait in (*again_s, *waits) if wait is not None), default=None)


def is_wanted(nodeset: NodeSet | None, node: Node | None, lock_key: str) -> bool:
    """Whether *nodeset* would have a Pod on *node*, were there none."""
    if nodeset is None or node is None or nodeset.metadata.deletion_timestamp is not None:
        return False
    try:
        spec = pod_spec(nodeset, lock_key)
        return not obstacle(spec, requests(spec), node)
    except (msgspec.ValidationError, ValueError):
        return True  # Unknown is never absent.


def _created(seen: Observed, feasible: frozenset[str]) -> tuple[CreatePod, ...]:
    """Return the Pods that are missing: on Nodes that are the set's, that were, then by name."""
    had, names = members_of(seen.slices), names_of(seen.slices)
    free = sorted(
        feasible - {pinned_node(pod) for pod in seen.pods},
        key=lambda name: (name not in had, name not in names, name),
    )
    wanted = len(free) if seen.nodeset.spec.replicas is None else seen.nodeset.spec.replicas - len(seen.pods)
    taken = {*names.values(), *seen.taken, *(pod.metadata.name for pod in seen.pods)}
    made: list[CreatePod] = []
    for kube_node in free[: max(wanted, 0)]:
        name = _name(seen, seen.nodes[kube_node], names.get(kube_node, ""), taken)
        taken.add(name)
        made.append(CreatePod(name, kube_node))
    return tuple(made)


def _name(seen: Observed, node: Node, chosen: str, taken: set[str]) -> str:
    """Return the name of the Pod on *node*: the one that was chosen before, if there is one."""
    if chosen and chosen not in seen.taken:
        return chosen
    return pod_name(seen.nodeset.prefix, node.metadata.name, node.internal_ip, taken)


def _replaced(seen: Observed) -> tuple[tuple[ReplacePod, ...], float | None]:
    """Return the Pods that ended or have no Node any more and are due to go, and when the next one is."""
    ended = sorted((pod for pod in seen.pods if pod.is_over and not pod.is_terminating), key=_name_of)
    due = [pod for pod in ended if _wait_s(pod, seen) <= 0]
    due += sorted((pod for pod in seen.pods if _is_nowhere(pod, seen)), key=_name_of)
    waits = [wait_s for pod in ended if (wait_s := _wait_s(pod, seen)) > 0]
    return (
        tuple(ReplacePod(pod.metadata.name, pod.metadata.uid, pod.status.phase) for pod in due),
        min(waits, default=None),
    )


def _is_nowhere(pod: Pod, seen: Observed) -> bool:
    """Whether *pod* waits for a Node that is gone. Kubernetes removes only those that ran there."""
    if pod.spec.node_name or pod.is_over or pod.is_terminating:
        return False
    return bool(pinned_node(pod)) and pinned_node(pod) not in seen.nodes


def _wait_s(pod: Pod, seen: Observed) -> float:
    """Return how long *pod* still waits to be replaced: the longer, the more often that has happened.

    One that was counted has waited, and was to be deleted.
    """
    if pod.metadata.uid in seen.failed:
        return 0.0
    created = pod.metadata.creation_timestamp or seen.now
    pause_s = doubled(seen.replace_after_s, seen.failures.get(pod.metadata.name, 0), LAST_WAIT_S)
    return (created + timedelta(seconds=pause_s) - seen.now).total_seconds()


def _name_of(pod: Pod) -> str:
    return pod.metadata.name
