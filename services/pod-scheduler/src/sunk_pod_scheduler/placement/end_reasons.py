"""Why a Pod ends because of its job, in an operator's words: what became of the job, as far as Slurm says."""

from collections.abc import Mapping
from typing import Final

from sunk_pod_scheduler.placement.model import AnyJob, JobSeen

NOT_SERVED: Final = "this pod-scheduler no longer serves the Pod's spec.schedulerName"
_SHOWN: Final = 64
_BY_STATE: Final[Mapping[str, str]] = {
    "CANCELLED": "was cancelled (scancel)",
    "TIMEOUT": "reached its time limit",
    "DEADLINE": "reached its deadline",
    "PREEMPTED": "was preempted by another job",
    "NODE_FAIL": "ended because its node failed",
    "BOOT_FAIL": "ended because its node did not boot",
    "OUT_OF_MEMORY": "ended out of memory",
    "COMPLETED": "ended because its script ended",
    "FAILED": "ended because its script failed",
    "SUSPENDED": "was suspended",
    "PENDING": "was requeued",
}


def cause(job: JobSeen) -> str:
    """Return what became of a job that does not run any more, with Slurm's word for it."""
    words = _BY_STATE.get(job.base, "does not run any more")
    return f"job {job.job} {words}: it is {job.base}"


def release_requested(job: AnyJob) -> str:
    """Return why the script of *job*, or an epilog, asks for the Pod's end."""
    if isinstance(job, JobSeen) and not job.is_running:
        return cause(job)
    if isinstance(job, JobSeen) and job.is_preempted:
        return f"job {job.job} is being preempted by another job"
    which = f" of job {job.job}" if isinstance(job, JobSeen) else ""
    return f"Slurm signalled the script{which} to end, or the node's epilog requested the Pod's end"


def forgotten(job: int | None) -> str:
    """Return what is said of a job that Slurm does not know any more, and that has ended."""
    return f"job {job} has ended, and Slurm has forgotten it"


def requeued(job: JobSeen) -> str:
    """Return what became of a job that runs, or waits, anew: jobs of Pods forbid it (`requeue=False`)."""
    return f"job {job.job} was requeued: slurmd did not acknowledge its launch, or its user requeued it"


def by_whom(user: str) -> str:
    """Return the end of a sentence that names who cancelled a job, as accounting has it."""
    return f", by Slurm user {plain(user)[:_SHOWN]}" if user else ""


def plain(text: str) -> str:
    """Return *text* in one line: what cannot be printed is replaced, for others may have written it."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
