"""A Pod whose job waits in Slurm, or whose script has not begun: what its Pod says of that.

A job that waits has the start that backfill expects in the look that is taken of it anyway. Backfill computes
it anew at each of its turns, so a Pod keeps to the time that it said (`_start_to_report`): one write for as
long as the expected start stays where it was, one in ten minutes at most where it moves, by condition alone.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement.actions import Action, RecordReason, Wait
from sunk_pod_scheduler.placement.limits import (
    LOOK_AGAIN_S,
    SILENT_FIRST_S,
    START_AGAIN_S,
    START_OFF,
    START_OFF_MIN_S,
    START_SOON_S,
    WAITING_AGAIN_S,
    WAITING_FIRST_S,
    Limits,
)
from sunk_pod_scheduler.placement.model import JobSeen, PodSeen
from sunk_pod_scheduler.placement.transitions import waits_for
from sunk_pod_scheduler.reasons import PodReason
from sunk_slurm import hostlist

PRIORITY_S: Final = 30.0
"""How long a job is asked again to have its Pod's priority: something in Slurm may keep it from that."""


def lacks_priority(pod: PodSeen, placement: PlacementState, job: JobSeen, now: datetime) -> bool:
    """Whether the job was released, and what its Pod asks for not set: that is a second call."""
    is_due = now < placement.changed + timedelta(seconds=PRIORITY_S)
    return pod.priority is not None and job.priority != pod.priority and is_due


def pending(placement: PlacementState, job: JobSeen, now: datetime) -> Action:
    """Say why Slurm does not start a job that is released; nothing that the bus tells, as that is old."""
    if job.is_from_bus:
        return Wait(WAITING_FIRST_S, is_patient=True)
    return _held(placement, job, now) if job.reason == "JobHeldAdmin" else _waiting(placement, job, now)


def _held(placement: PlacementState, job: JobSeen, now: datetime) -> Action:
    reason = (
        f"Slurm holds job {job.job} (JobHeldAdmin): slurmctld does not know its user, or an "
        "administrator holds it"
    )
    if placement.reason == reason:
        return Wait(LOOK_AGAIN_S, is_patient=True)
    return RecordReason(state=replace(placement, changed=now, reason=reason), event=PodReason.JOB_HELD)


def _waiting(placement: PlacementState, job: JobSeen, now: datetime) -> Action:
    """Say what Slurm says, but neither of a moment's wait nor of each turn that its reason takes."""
    reason, start = waits_for(job), _start_to_report(placement.start_told, job.started, now)
    if not reason:
        return Wait(WAITING_FIRST_S)
    if (reason, start) == (placement.reason, placement.start_told):
        return Wait(LOOK_AGAIN_S, is_patient=True)
    is_quiet = reason == placement.reason
    if not placement.reason:
        quiet_s = WAITING_FIRST_S
    else:
        quiet_s = START_AGAIN_S if is_quiet and placement.start_told is not None else WAITING_AGAIN_S
    left_s = (placement.changed + timedelta(seconds=quiet_s) - now).total_seconds()
    if left_s > 0:
        return Wait(min(left_s, LOOK_AGAIN_S), is_patient=True)
    state = replace(placement, changed=now, reason=reason, start_told=start)
    more = "" if start is None else f"; Slurm expects to start it at about {start:%Y-%m-%d %H:%M} UTC"
    return RecordReason(state=state, event=PodReason.WAITING_FOR_SLURM, more=more, is_quiet=is_quiet)


def _start_to_report(reported: datetime | None, expected: datetime | None, now: datetime) -> datetime | None:
    """Return the start to report on a Pod: *reported* as before, until what Slurm expects is far from it.

    Far is more than five minutes, and more than a quarter of the time that is left until then. A start that
    is less than a minute ahead is none: slurmctld says "now" of one that it has missed.
    """
    if expected is None or (left_s := (expected - now).total_seconds()) < START_SOON_S:
        return None
    if reported is not None and abs((expected - reported).total_seconds()) <= max(
        START_OFF_MIN_S, START_OFF * left_s
    ):
        return reported
    return expected.replace(second=0, microsecond=0)


def starting(placement: PlacementState, job: JobSeen, now: datetime, limits: Limits) -> Wait | RecordReason:
    """Say what keeps the script of a job that runs from announcing itself, once that takes long."""
    if job.reason == "Prolog":
        return in_prolog(placement, job, now)
    where = hostlist.compress(job.nodes)
    reason = (
        f"job {job.job} runs on {where}, and its script has not called {limits.hooks_url}: "
        "check that the node reaches this address and trusts its certificate"
    )
    return _report(placement, job, now, reason, PodReason.SCRIPT_SILENT, quiet_s=SILENT_FIRST_S)


def in_prolog(placement: PlacementState, job: JobSeen, now: datetime) -> Wait | RecordReason:
    """Say that a job that runs waits for the locks of its nodes, once that takes long."""
    where = hostlist.compress(job.nodes)
    return waits_for_lock(
        placement, job, now, f"job {job.job} waits in its prolog until {where} is locked for it"
    )


def waits_for_lock(
    placement: PlacementState, job: JobSeen, now: datetime, reason: str
) -> Wait | RecordReason:
    """Say that a job that runs waits for a lock, and for which *reason*, once that takes long."""
    return _report(placement, job, now, reason, PodReason.WAITING_FOR_LOCK, quiet_s=WAITING_FIRST_S)


def _report(
    placement: PlacementState, job: JobSeen, now: datetime, reason: str, event: PodReason, *, quiet_s: float
) -> Wait | RecordReason:
    reason = reason[:REASON_MAX]
    if placement.reason == reason:
        return Wait(LOOK_AGAIN_S)
    since = max(placement.changed, job.started or placement.changed)
    left_s = (since + timedelta(seconds=quiet_s) - now).total_seconds()
    if left_s > 0:
        return Wait(min(left_s, LOOK_AGAIN_S))
    return RecordReason(state=replace(placement, changed=now, reason=reason), event=event)
