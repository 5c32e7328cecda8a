"""A Pod that runs, and whose job Slurm does not know any more although nobody saw it end.

slurmctld has lost its state, then. The Pod is not deleted for that: it gets another job on the same node,
or, by setting, some time to end. Only a job that Slurm certainly does not have lets that time run out.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_pod_scheduler.limits import LOOK_AGAIN_S, LOST_CONFIRM_S, Limits
from sunk_pod_scheduler.model import Action, JobSeen, Record, TellLoss, Wait
from sunk_pod_scheduler.outcomes import ending, waits_for

NO_OTHER_JOB: Final = "Slurm has lost the Pod's job, and no other has started"


AHEAD: Final = 4_294_967_293
"""The highest priority that Slurm takes: the Pod's place is on a node that Slurm takes for free."""


def without_job(
    placement: PlacementState, now: datetime, limits: Limits, *, is_certain: bool = False
) -> Action:
    """Slurm does not know the job of a Pod that runs, and nobody saw it end: slurmctld has lost its state.

    *is_certain*: its number is another's, or its script was told to end; then the node is not left to others
    any longer.
    """
    reason = f"job {placement.job} is unknown to Slurm, and was not seen to end"
    if placement.lost is None:
        return TellLoss(state=replace(placement, changed=now, lost=now, reason=reason))
    patience = timedelta(seconds=0.0 if is_certain else LOST_CONFIRM_S)
    due = placement.lost + patience if limits.adopts_lost else _given_up_at(placement.lost, limits)
    if now < due:
        return Wait(min((due - now).total_seconds(), LOOK_AGAIN_S))
    if not limits.adopts_lost:
        return ending(placement, reason, now)
    return once_more(placement, now)


def once_more(placement: PlacementState, now: datetime) -> Record:
    """Another job is to be submitted for the Pod, on its node."""
    again = replace(placement, phase="submitted", changed=now, attempt=placement.attempt + 1)
    return Record(state=replace(again, job=None, token_sha256="", silent=None))


def pending(placement: PlacementState, job: JobSeen, now: datetime, limits: Limits) -> Action:
    """The Pod runs and its other job waits: for a while."""
    if is_given_up(placement, now, limits):
        return ending(placement, waits_for(job) or NO_OTHER_JOB, now)
    return Wait(LOOK_AGAIN_S)


def is_given_up(placement: PlacementState, now: datetime, limits: Limits) -> bool:
    """Whether the Pod has run without a job for too long."""
    return placement.lost is not None and now >= _given_up_at(placement.lost, limits)


def _given_up_at(lost: datetime, limits: Limits) -> datetime:
    return lost + timedelta(seconds=limits.lost_s)
