"""What the scheduler can do about one Pod, or about a gang as about one. Values only."""

import msgspec

from sunk_events.placements import PlacementState
from sunk_pod_scheduler.reasons import PodReason


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until something changes, or for *after_s* seconds."""

    after_s: float | None = None
    is_patient: bool = False
    """It may be later where many wait: nothing is due then."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Store *state*; its phase tells which fact is published, if it is a new one."""

    state: PlacementState


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Say on the Pod what is wrong with it, and store that it is refused."""

    state: PlacementState


class RecordReason(msgspec.Struct, frozen=True, kw_only=True):
    """Say on the Pod why its job does not start, or what is wrong while it runs, and store it."""

    state: PlacementState
    event: PodReason
    more: str = ""
    """What the Pod says besides the reason that is stored: it changes more often."""
    is_quiet: bool = False
    """Only what is *more* has changed: the condition says it, and no Event."""

    @property
    def is_warning(self) -> bool:
        """Somebody has to do something."""
        return self.event in {PodReason.JOB_HELD, PodReason.SCRIPT_SILENT, PodReason.CUT_OFF}


class ReportLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Say on a Pod that runs that Slurm has lost its job, or that it has one again, and store it."""

    state: PlacementState


class Submit(msgspec.Struct, frozen=True):
    """Store the intent, then submit a held job, write its id on the Pod, store it."""

    attempt: int


class Resume(msgspec.Struct, frozen=True):
    """An intent was stored, but no job: look for it in Slurm before submitting."""

    attempt: int


class ExcludeNodes(msgspec.Struct, frozen=True):
    """Tell Slurm which nodes a job that waits must not get: others than before."""

    job: int
    excluded: str


class GiveUp(msgspec.Struct, frozen=True, kw_only=True):
    """End a job that is of no use to its Pod, which is told why, and store *state*, which has no job."""

    state: PlacementState
    job: int
    event: PodReason | None = None
    """None: the Pod is not told."""


class ReleaseJob(msgspec.Struct, frozen=True):
    """Let Slurm start the held job, with the priority that its Pod asks for."""

    job: int
    priority: int | None = None


class MarkStarted(msgspec.Struct, frozen=True):
    """Append ``: started`` to the job's Extra, and write its AdminComment, whether we released it or not."""

    job: int
    extra: str


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """Add the lock's toleration, bind the Pod to its Node, then store *state*."""

    state: PlacementState


class DeletePod(msgspec.Struct, frozen=True):
    """Delete the Pod, with the grace that it asks for."""


class CancelJob(msgspec.Struct, frozen=True):
    """End the job."""

    job: int


class Forget(msgspec.Struct, frozen=True):
    """Pod and job are both over: delete the state."""


Action = (
    Wait
    | Record
    | Refuse
    | RecordReason
    | ReportLoss
    | Submit
    | Resume
    | ExcludeNodes
    | GiveUp
    | ReleaseJob
    | MarkStarted
    | Bind
    | DeletePod
    | CancelJob
    | Forget
)
