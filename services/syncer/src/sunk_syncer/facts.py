"""From what Slurm shows of a node to its state on the bus and to what has happened since.

A fact's id names the state that it replaces by its revision: published twice it is the same fact, and the
second drain in a minute is another one.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from sunk_events.base import REASON_MAX, Event, event_id, source
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
        features=tuple(sorted(seen.active_features or seen.features)),
        partitions=tuple(sorted(seen.partitions)),
        address=seen.address,
        extra=seen.extra[:EXTRA_MAX],
        booted=seen.boot_time.moment,
        slurmd_started=seen.slurmd_start_time.moment,
    )


def node_facts(
    before: SlurmNodeState | None, after: SlurmNodeState, *, cluster: str, revision: int, now: datetime
) -> tuple[Event, ...]:
    """Return what has happened to a node between two states; *before* is what the bus holds at *revision*."""
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
    return tuple(_fact(kind, after, cluster, revision, now) for kind in kinds)


def node_removed(before: SlurmNodeState, *, cluster: str, revision: int, now: datetime) -> tuple[Event, ...]:
    """Return the fact that Slurm's record of a node is gone."""
    return (_fact(NodeRemoved, before, cluster, revision, now),)


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
