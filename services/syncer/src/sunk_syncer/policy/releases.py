"""Which of the jobs that are held because of failed locks may be released. Pure.

A prolog that is refused while as many nodes as may be are drained by failed locks has its job requeued and
held, and marks it. What must stay true: a hold by a user or an administrator is not touched. If every
lock of the jobs that are released at once fails again, no more nodes are drained than the limit allows.

Source: slurmctld 24.11 and 26.05, measured: ``scontrol requeuehold`` leaves `JobHeldUser` and that
description; ``scontrol hold`` by root makes it `JobHeldAdmin`; a release takes the description away.
"""

from collections.abc import Iterable
from typing import Final

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_slurm.failed_locks import drains_at_most, is_drained_by_lock
from sunk_slurm.wire import Job

MARK: Final = "sunk: held:"
"""How the AdminComment begins that the prolog gives to a job it has held."""
RELEASED: Final = "sunk: released:"
"""What the mark is replaced by: a later hold of the same job is somebody else's."""
HELD: Final = "JobHeldUser"
REQUEUED_HELD: Final = "job requeued in held state"


def may_be_held_by_us(job: SlurmJobState) -> bool:
    """Whether it is worth a look: the mark comes a moment after the hold, and may not be known yet."""
    return job.is_held and job.state == "PENDING" and job.restarts > 0 and job.reason == HELD


def is_held_by_us(job: Job) -> bool:
    """Whether a fresh look shows the hold of a failed lock.

    Each component of a heterogeneous job shows its own, and is released by itself: the job starts when none
    is held. A record of several tasks of an array never does: none of those has run.
    """
    if job.array_job_id.value and job.array_task_id.value is None:
        return False
    is_held = job.state_now.is_pending and job.hold and job.state_reason == HELD
    return is_held and job.state_description == REQUEUED_HELD and job.admin_comment.startswith(MARK)


def released_comment(admin_comment: str) -> str:
    """Return the AdminComment of a job after its release."""
    return RELEASED + admin_comment.removeprefix(MARK)


def room(nodes: Iterable[SlurmNodeState], on_trial: int) -> int:
    """Return how many more jobs may be released: as many as failed locks may drain further nodes.

    Args:
        nodes: All nodes.
        on_trial: How many recently released jobs have not shown yet whether their lock fails again.
    """
    known = tuple(nodes)
    return max(0, drains_at_most(len(known)) - sum(map(is_drained_by_lock, known)) - on_trial)
