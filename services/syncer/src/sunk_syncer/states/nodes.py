"""From what Slurm shows of a node to its state on the bus and to what has happened since.

A fact's id names the state that it replaces by its revision: published twice it is the same fact, and the
second drain in a minute is another one.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from sunk_events.base import REASON_MAX, UNKNOWN, Cause, Event, caused, event_id, source
from sunk_events.nodes import (
    NodeAllocated,
    NodeDown,
    NodeDrained,
    NodeDraining,
    NodeIdle,
    NodeNotResponding,
    NodeRegistered,
    NodeRemoved,
    NodeResponding,
    NodeSnapshot,
    NodeUndrained,
    NodeUp,
    SlurmNodeState,
)
from sunk_slurm.gres import gpus
from sunk_slurm.wire import Node
from sunk_syncer.actions import DeleteNode, DownNode, DrainNode, NodeAction, ResumeNode, UndrainNode

SERVICE: Final = "syncer"
EXTRA_MAX: Final = 16 * 1024
"""Slurm takes 200,000 characters, a message does not."""

NodeFact = type[
    NodeRegistered
    | NodeRemoved
    | NodeDraining
    | NodeDrained
    | NodeUndrained
    | NodeDown
    | NodeUp
    | NodeAllocated
    | NodeIdle
    | NodeNotResponding
    | NodeResponding
]


def node_state(seen: Node, now: datetime) -> SlurmNodeState:
    """Return *seen* as others may read it."""
    state = seen.state_now
    return SlurmNodeState(
        changed=now,
        node=seen.name,
        state=state.base,
        flags=tuple(sorted(state.flags)),
        reason=seen.reason[:REASON_MAX],
        reason_user=seen.reason_set_by_user,
        reason_changed=seen.reason_changed_at.moment,
        is_drain=state.is_drain,
        is_busy=state.is_busy,
        is_down=state.is_down,
        is_not_responding=state.is_not_responding,
        cpus=max(seen.cpus, 0),
        cpus_allocated=max(seen.alloc_cpus, 0),
        memory_mib=max(seen.real_memory, 0),
        memory_allocated_mib=max(seen.alloc_memory, 0),
        gpus=gpus(seen.gres),
        gpus_allocated=gpus(seen.gres_used),
        gres=seen.gres,
        features=tuple(sorted(seen.features_now.active)),
        partitions=tuple(sorted(seen.partitions)),
        address=seen.address,
        extra=seen.extra[:EXTRA_MAX],
        topology=None if seen.topology is None else seen.topology[:EXTRA_MAX],
        booted=seen.boot_time.moment,
        slurmd_started=seen.slurmd_start_time.moment,
    )


def node_facts(
    before: SlurmNodeState | None,
    after: SlurmNodeState,
    *,
    cluster: str,
    revision: int,
    now: datetime,
    actions: Sequence[NodeAction] = (),
) -> tuple[Event, ...]:
    """Return what has happened to a node between two states.

    Args:
        before: What the bus holds at *revision*.
        after: What was seen.
        cluster: The Slurm cluster.
        revision: Of *before*.
        now: The time.
        actions: What was done to the node lately: the cause of what follows from one is its.
    """
    kinds: list[NodeFact] = [NodeRegistered] if before is None else []
    if (before is not None and before.is_not_responding) != after.is_not_responding:
        kinds.append(NodeNotResponding if after.is_not_responding else NodeResponding)
    if (before is not None and before.is_busy) != after.is_busy:
        kinds.append(NodeAllocated if after.is_busy else NodeIdle)
    was, is_now = _drainedness(before), _drainedness(after)
    if was != is_now:
        kinds.append({"": NodeUndrained, "draining": NodeDraining, "drained": NodeDrained}[is_now])
    if (before is not None and before.is_down) != after.is_down:
        kinds.append(NodeDown if after.is_down else NodeUp)
    facts = (_fact(kind, after, cluster, revision, now) for kind in kinds)
    return tuple(caused(fact, cause_of(fact, actions)) for fact in facts)


def node_removed(
    before: SlurmNodeState, *, cluster: str, revision: int, now: datetime, actions: Sequence[NodeAction] = ()
) -> tuple[Event, ...]:
    """Return the fact that Slurm's record of a node is gone; *actions* as of `node_facts`."""
    fact = _fact(NodeRemoved, before, cluster, revision, now)
    return (caused(fact, cause_of(fact, actions)),)


def cause_of(fact: Event, actions: Iterable[NodeAction]) -> Cause:
    """Return what led to *fact*, as far as one of *actions*, which were done lately, has."""
    return next((action.cause for action in actions if _leads_to(action, fact)), UNKNOWN)


def _leads_to(action: NodeAction, fact: Event) -> bool:
    match action, fact:
        case DrainNode(), NodeDraining() | NodeDrained():
            return fact.data.reason == action.reason
        case (
            (UndrainNode(), NodeUndrained())
            | (ResumeNode(), NodeUndrained() | NodeUp())
            | (DownNode(), NodeDown())
            | (DeleteNode(), NodeRemoved())
        ):
            return True
        case _:
            return False


def is_standing(action: NodeAction, *, state: SlurmNodeState) -> bool:
    """Whether *action* is a drain that stands: it leads to "drained" once the last job ends, in hours too."""
    return isinstance(action, DrainNode) and state.is_drain and state.reason == action.reason


def is_reported(action: NodeAction, *, facts: Iterable[Event], state: SlurmNodeState) -> bool:
    """Whether *facts* tell what *action* has led to, and nothing more can follow from it."""
    return any(_leads_to(action, fact) for fact in facts) and not is_standing(action, state=state)


def _drainedness(state: SlurmNodeState | None) -> str:
    if state is None or not state.is_drain:
        return ""
    return "draining" if state.is_busy else "drained"


def _fact(kind: NodeFact, state: SlurmNodeState, cluster: str, revision: int, now: datetime) -> Event:
    make: Callable[..., Event] = kind
    return make(
        id=event_id(kind.__name__, state.node, revision),
        source=source(cluster, SERVICE),
        subject=state.node,
        time=now,
        data=NodeSnapshot(node=state.node, state=state.state, flags=state.flags, reason=state.reason),
    )
