"""What the bus says of a placement's job, where that does instead of a look at it. Pure.

What must stay true: it does only where it says what was expected, so that nothing follows from it but to go
on waiting, or that what was seen to be over is over. On missing, old or unexpected state, Slurm is asked.
"""

from datetime import datetime, timedelta
from typing import Final

from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.model import JobSeen
from sunk_pod_scheduler.placement.ownership import Owner, is_whose
from sunk_pod_scheduler.podspec.job_size import held_on_bus
from sunk_slurm import hostlist

CURRENT: Final = timedelta(minutes=2)
"""The syncer asks for all jobs once a minute where nothing stirs, and tells of it ten seconds later."""
BUS_SILENT_S: Final = 10.0
"""The bus gives a sign of life every second."""


def is_current(answered: datetime | None, now: datetime) -> bool:
    """Whether the bus' jobs are Slurm's, of which Slurm was last asked at *answered*; no clock is far off."""
    return answered is not None and abs(now - answered) <= CURRENT


def expected(
    state: SlurmJobState | None, placement: PlacementState, owner: Owner, key: bytes, *, is_first: bool
) -> JobSeen | None:
    """Return the job of *placement* as the bus has it, if it is as it was; a Pod's silence is worth a look.

    Args:
        state: What the bus has.
        placement: What is stored of the Pod.
        owner: The Pod or gang that it is to belong to.
        key: Of our marks.
        is_first: Nobody has looked at the Pod since we lead. Why a job waits is old on the bus: that is
            looked at later.
    """
    if state is None or state.flags or state.restarts or state.job != placement.job:
        return None
    if placement.silent or placement.lost:
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
    return _seen(state, nodes, owner, key)


def is_held_again(state: SlurmJobState, placement: PlacementState) -> bool:
    """Whether somebody holds a job that was released: the bus hears of a release late."""
    return state.is_held and state.changed > placement.changed


def announced(state: SlurmJobState | None, owner: Owner, node: str, key: bytes) -> JobSeen | None:
    """Return the job of *owner* as the bus has it, if its script calls from a node that Slurm gave it.

    It keeps its nodes until it is over; whether that is so by now the next write to it tells.
    """
    if state is None or state.state != "RUNNING" or state.flags or state.restarts:
        return None
    nodes = hostlist.expand(state.nodes)
    found = _seen(state, nodes, owner, key) if node in nodes else None
    return found if found is not None and found.held is not None else None


def _seen(state: SlurmJobState, nodes: tuple[str, ...], owner: Owner, key: bytes) -> JobSeen | None:
    mark = marks.read_extra(key, state.extra, state.user_id)
    if not is_whose(mark, owner, state.user_id):
        return None
    return JobSeen(
        job=state.job,
        base=state.state,
        is_from_bus=True,
        is_over=state.is_over,
        reason=state.reason,
        submitted=state.submitted,
        started=state.started,
        nodes=nodes,
        held=held_on_bus(state),
        is_marked_started=marks.is_started(state.extra),
        extra=state.extra,
        name=state.name,
        user_id=state.user_id,
        mark=mark,
    )
