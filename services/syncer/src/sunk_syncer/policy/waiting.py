"""What the AdminComment of a job says while it waits for the locks of its nodes. Pure.

What must stay true: an AdminComment that is not ours is never changed. A prolog that is refused marks its job
by an AdminComment of its own, and nothing of ours may replace that: while prologs may still be refused, and
while the job is held, ours stays.

Source: slurmctld 24.11 and 26.05, measured: the reason of such a job is `Prolog` until all its prologs ended.
"""

from typing import Final

from sunk_slurm.waiting_jobs import MARK
from sunk_slurm.wire import Job
from sunk_syncer.policy.requeues import PROLOG

REFUSED_S: Final = 60.0
"""So long after its last lock was granted no prolog of a job is refused any more, though one still runs."""


def wanted_comment(job: Job, text: str, rested_s: float) -> str | None:
    """Return the AdminComment that a fresh look shows to be missing; None: it stays as it is.

    Args:
        job: The job as it is now.
        text: What it waits for; empty: it does not wait.
        rested_s: For how long it has not waited.
    """
    if job.admin_comment and not is_ours(job.admin_comment):
        return None
    if _is_several_tasks(job) or job.state_now.is_over:
        return None
    if text:
        wanted = MARK + text
        return wanted if is_in_prolog(job) and wanted != job.admin_comment else None
    if not job.admin_comment or job.hold or (is_in_prolog(job) and rested_s < REFUSED_S):
        return None
    return ""


def is_ours(admin_comment: str) -> bool:
    """Whether the syncer has written it for a job that waits."""
    return admin_comment.startswith(MARK)


def is_in_prolog(job: Job) -> bool:
    """Whether *job* runs and one of its prologs does."""
    return job.state_now.is_running and job.state_reason == PROLOG


def _is_several_tasks(job: Job) -> bool:
    return bool(job.array_job_id.value) and job.array_task_id.value is None
