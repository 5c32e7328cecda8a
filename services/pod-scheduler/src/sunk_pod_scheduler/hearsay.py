"""What the bus says of a placement's job, where that does instead of a look at it. Pure.

What must stay true: it does only where it says what was expected, so that nothing follows from it but to go
on waiting, or that what was seen to be over is over. Whoever hears of anything else, or of nothing, or
something old, looks.
"""

from datetime import datetime, timedelta
from typing import Final

from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler import marks
from sunk_pod_scheduler.model import JobSeen
from sunk_slurm import hostlist

CURRENT: Final = timedelta(minutes=2)
"""The syncer asks for all jobs once a minute where nothing stirs, and tells of it ten seconds later."""
BUS_SILENT_S: Final = 10.0
"""The bus gives a sign of life every second."""


def is_current(answered: datetime | None, now: datetime) -> bool:
    """Whether the bus' jobs are Slurm's, of which Slurm was last asked at *answered*; no clock is far off."""
    return answered is not None and abs(now - answered) <= CURRENT


def expected(
    state: SlurmJobState | None, placement: PlacementState, key: bytes, *, is_first: bool
) -> JobSeen | None:
    """Return the job of *placement* as the bus has it, if it is as it was; a Pod's silence is worth a look.

    Args:
        state: What the bus has.
        placement: What is stored of the Pod.
        key: Of our marks.
        is_first: Nobody has looked at the Pod since we lead. Why a job waits is old on the bus: that is
            looked at later.
    """
    if state is None or state.flags or state.job != placement.job or placement.silent or placement.lost:
        return None
    match placement.phase, state.state:
        case "bound", "RUNNING" if placement.node in (nodes := hostlist.expand(state.nodes)):
            pass
        case "released", "PENDING" if is_first and not is_held_again(state, placement):
            nodes = ()
        case "ended", _ if state.is_over:
            nodes = hostlist.expand(state.nodes)
        case _:
            return None
    mark = marks.read_extra(key, state.extra)
    if mark is None or (mark.uid, mark.attempt) != (placement.uid, placement.attempt):
        return None
    return _seen(state, nodes)


def is_held_again(state: SlurmJobState, placement: PlacementState) -> bool:
    """Whether somebody holds a job that was released: the bus hears of a release late."""
    return state.is_held and state.changed > placement.changed


def announced(state: SlurmJobState | None, uid: str, node: str, key: bytes) -> JobSeen | None:
    """Return the job of the Pod *uid* as the bus has it, if its script calls from a node that Slurm gave it.

    It keeps its nodes until it is over; whether that is so by now the next write to it tells.
    """
    if state is None or state.state != "RUNNING" or state.flags:
        return None
    nodes, mark = hostlist.expand(state.nodes), marks.read_extra(key, state.extra)
    if mark is None or mark.uid != uid or node not in nodes:
        return None
    return _seen(state, nodes)


def _seen(state: SlurmJobState, nodes: tuple[str, ...]) -> JobSeen:
    return JobSeen(
        job=state.job,
        base=state.state,
        is_hearsay=True,
        is_over=state.is_over,
        reason=state.reason,
        nodes=nodes,
        is_marked_started=marks.is_started(state.extra),
        extra=state.extra,
    )
