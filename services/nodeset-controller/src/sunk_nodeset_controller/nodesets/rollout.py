"""Which Pods of a NodeSet are to go, for an update, a smaller size or its end, and which may go now; pure.

What must stay true: who was condemned stays first in line, so that planning again chooses nobody else; a
Pod is deleted only when Slurm says that its node is drained and idle; an update keeps no more than
``maxUnavailable`` Pods away, and those that it has begun with count, ready or not; an updated Pod is away
until Slurm can use its node; while as many as may be are away, a Pod that it has begun with does not go: it
keeps its mark while its node drains, and is released when it could have gone for `HELD_S`; what a plan no
longer needs is released; while Slurm is not heard, or suddenly knows far fewer nodes, nobody new is chosen;
that Slurm no longer knows a node is no reason for its Pod to go.
The mark is an annotation of the Pod: it outlives the process that set it.

Source: SUNK's documents, NodeSet, "Safe deletion"; Kubernetes, DaemonSet, ``maxUnavailable``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from sunk_kube import wellknown as wk
from sunk_kube.objects import condition
from sunk_nodeset_controller.nodesets.feasibility import LEFT_OUT
from sunk_nodeset_controller.nodesets.members import Cost, Member, is_loss
from sunk_nodeset_controller.nodesets.model import Action, CondemnPod, DeletePod, Observed, ReleasePod, Why
from sunk_nodeset_controller.nodesets.slices import names_of
from sunk_nodeset_controller.nodesets.template import pinned_node
from sunk_nodeset_controller.slurm_health import was_known

UPDATED: Final = "Updated"
"""The condition of a NodeSet: every Pod is of the present template. False since an update has begun."""
HELD_S: Final = 60.0
"""So long a drained, idle node waits until other Pods are back; then it takes jobs again."""
LOOK_AGAIN_S: Final = 3.0
"""How soon a condemned Pod is looked at again though nothing was heard of it."""


def failed_nodes(seen: Observed, obstacles: Mapping[str, str]) -> frozenset[str]:
    """Return the Nodes that had a Pod, have none, and became not ready since the present update began.

    That their Pods went may have made them fail, so the update counts each as one Pod that is away.
    """
    updated = condition(seen.nodeset.status.conditions, UPDATED)
    if updated is None or updated.status != "False" or updated.last_transition_time is None:
        return frozenset()
    have = {pinned_node(pod) for pod in seen.pods if not pod.is_over and not pod.is_terminating}
    found: set[str] = set()
    for name in names_of(seen.slices).keys() - have - seen.let_go:
        node, why = seen.nodes.get(name), obstacles.get(name)
        if node is None or not why or why in LEFT_OUT:
            continue
        ready = condition(node.status.conditions, wk.CONDITION_READY)
        if ready is None or ready.status == "True" or ready.last_transition_time is None:
            continue
        if ready.last_transition_time >= updated.last_transition_time:
            found.add(name)
    return frozenset(found)


class Rollout(NamedTuple):
    """What to do with the Pods of a NodeSet that live."""

    actions: tuple[Action, ...]
    waiting: frozenset[str]
    """The names of those that an update has begun with, and that do not go before others are back."""


def rollout(seen: Observed, found: list[Member], wanted: int) -> Rollout:
    """Return what to do with the Pods that live, of which *wanted* are to stay and be of the template."""
    shrunk = _surplus(seen, found, is_chosen=_is_sure(seen))
    names = {member.name for member in shrunk}
    rest = [member for member in found if member.name not in names]
    updated = _updated(seen, rest, wanted)
    reasons: dict[str, Why] = {member.name: "scale-down" for member in shrunk}
    reasons |= {member.name: "update" for member in updated}
    waiting = _waiting(seen, rest, updated, wanted)
    return Rollout(carried_on(seen, found, reasons, waiting), waiting)


def ended(seen: Observed, found: list[Member]) -> tuple[Action, ...]:
    """Return what to do with the Pods that live when their NodeSet is to be no more."""
    return carried_on(seen, found, {member.name: "deletion" for member in found})


def withdrawn(seen: Observed, found: list[Member]) -> tuple[Action, ...]:
    """Return the marks to take back while the template is no Pod's: nobody goes for one that cannot be made.

    A Pod that was one too many and still is keeps its mark, as no template says how many there shall be. It
    does not go, for its place could not be filled again. One that is not ready is of no use without a mark.
    """
    kept = {member.name for member in _surplus(seen, found, is_chosen=False)}
    free = [one for one in found if one.condemned and one.pod.is_ready and one.name not in kept]
    line = sorted(free, key=lambda member: member.order)
    return tuple(ReleasePod(one.pod.metadata.name, one.pod.metadata.uid) for one in line)


def carried_on(
    seen: Observed, found: list[Member], reasons: Mapping[str, Why], waiting: frozenset[str] = frozenset()
) -> tuple[Action, ...]:
    """Return the marks that are missing or too many, and which marked Pods may go: none of *waiting*."""
    affected = [member for member in found if member.condemned or member.name in reasons]
    loss = bool(affected) and is_loss(found)
    actions: list[Action] = []
    for member in sorted(affected, key=lambda member: member.order):
        meta = member.pod.metadata
        why = reasons.get(member.name)
        if why is None:
            if member.condemned:
                actions.append(ReleasePod(meta.name, meta.uid))
        elif member.condemned != why:
            if member.condemned or seen.doubt is None:
                actions.append(CondemnPod(meta.name, meta.uid, why))
        elif _may_go(member, is_loss=loss):
            if member.name not in waiting:
                actions.append(DeletePod(meta.name, meta.uid, _may_be_unknown(member, is_loss=loss)))
            elif _is_idle_for_nothing(member, seen):
                actions.append(ReleasePod(meta.name, meta.uid))
    return tuple(actions)


def _is_idle_for_nothing(member: Member, seen: Observed) -> bool:
    """Whether a Pod that waits would serve without its mark, and could have gone for `HELD_S`."""
    if not member.is_available or member.unusable or member.slurm is None or seen.doubt is not None:
        return False
    return (seen.now - member.slurm.changed).total_seconds() >= HELD_S


def _may_go(member: Member, *, is_loss: bool) -> bool:
    """Whether what Slurm says of a condemned Pod's node lets it go."""
    if not member.is_known:
        return False
    if member.slurm is None:
        return _may_be_unknown(member, is_loss=is_loss)
    return member.slurm.is_drain and not member.slurm.is_busy


def _may_be_unknown(member: Member, *, is_loss: bool) -> bool:
    """Whether the Pod may go though Slurm does not know its node, which then never was known."""
    return not was_known(member.pod) and (not member.pod.is_ready or not is_loss)


def _surplus(seen: Observed, found: list[Member], *, is_chosen: bool) -> list[Member]:
    """Return the Pods that are too many; without *is_chosen* of those that were chosen before."""
    replicas = seen.nodeset.spec.replicas
    count = len(found) - replicas if replicas is not None else 0
    return _first(found, count, "scale-down", is_chosen=is_chosen) if count > 0 else []


def _updated(seen: Observed, rest: list[Member], wanted: int) -> list[Member]:
    """Return the Pods that an update is to replace now."""
    outdated = [member for member in rest if not member.is_updated]
    if not outdated or not seen.nodeset.spec.is_rolling:
        return []
    if not _is_sure(seen):
        return [member for member in outdated if member.condemned == "update"]
    limit = seen.nodeset.spec.max_unavailable(wanted)
    away = [member for member in outdated if member.is_away]  # Losing these costs nothing more.
    line = sorted((member for member in outdated if not member.is_away), key=_by_mark_and_cost)
    begun = [member for member in line if member.condemned == "update"][:limit]
    names = {member.name for member in begun}
    serving = sum(member.is_available for member in rest if member.name not in names)
    room = limit - max(wanted - serving, 0)
    for member in line:
        if len(begun) >= limit or member.condemned == "update" or member.is_lost:
            continue
        if member.is_available:
            if room <= 0:
                continue
            room -= 1
        begun.append(member)
    return [*away, *begun]


def _waiting(seen: Observed, rest: list[Member], updated: list[Member], wanted: int) -> frozenset[str]:
    """Return which Pods of *updated* serve, and must not go before others are back."""
    taken = max(wanted - len(rest), 0) + sum(one.is_missed for one in rest)
    room = max(seen.nodeset.spec.max_unavailable(wanted) - taken, 0)
    loss = is_loss(rest)

    def place(one: Member) -> tuple[bool, bool, bool, tuple[Cost, float, str]]:
        """Those that can go come first; one that is not ready is away already."""
        return one.is_available and not _may_go(one, is_loss=loss), *_by_mark_and_cost(one)

    serving = sorted((one for one in updated if not one.is_away), key=place)
    return frozenset(one.name for one in serving[room:])


def _by_mark_and_cost(member: Member) -> tuple[bool, bool, tuple[Cost, float, str]]:
    return member.condemned != "update", not member.condemned, member.order


def _is_sure(seen: Observed) -> bool:
    """Whether what Slurm says is a reason to choose anybody."""
    return seen.slurm is not None and seen.doubt is None


def _first(found: list[Member], count: int, why: Why, *, is_chosen: bool) -> list[Member]:
    """Return *count* Pods: the condemned first, then, if more are to be chosen, the cheapest."""
    line = sorted(found, key=lambda member: (member.condemned != why, member.order))
    if not is_chosen:
        line = [member for member in line if member.condemned == why]
    return line[:count]
