"""Which jobs with our mark are nobody's: left over from a submission that was lost, or given up."""

from typing import Literal

from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement.job_on_bus import is_held_again
from sunk_pod_scheduler.placement.marks import Claim, Mark
from sunk_pod_scheduler.placement.ownership import is_behind

Judgement = Literal["ours", "stray", "undecided", "doubled", "unclaimed"]
"""``doubled``: it has the mark of a Pod's job, and is not that job: it was copied, so nothing is done.
``unclaimed``: its Pod is on a Node and names no job, nor does the bus, or one of before it only."""


def is_news(state: SlurmJobState | None, placement: PlacementState | None) -> bool:
    """Whether a change of a placeholder's job is a reason to look at it: not that it goes as it should.

    A burst of Pods has a burst of such changes, and looks take slurmctld's time while it starts the jobs.
    That a job runs is told by its script. A job that was submitted at another moment than the Pod's has its
    number by now: slurmctld lost its state.
    """
    if state is None or placement is None or state.flags or state.restarts or placement.roster is not None:
        return True
    if placement.submitted is not None and state.submitted not in (None, placement.submitted):
        return True
    match placement.phase, state.state:
        case "submitted", "PENDING":
            return False
        case "released", "PENDING":
            return is_held_again(state, placement)
        case "released" | "started" | "bound", "RUNNING":
            return False
        case _:
            return True


def judge(
    job: int, mark: Mark, placement: PlacementState | None, claim: Claim | None, *, is_on_node: bool = False
) -> Judgement:
    """Return whose *job* is.

    Args:
        job: A job that is not over.
        mark: What its Extra says; the mark was verified.
        placement: That of the Pod in the mark; None if there certainly is none.
        claim: What that Pod's annotation says; None too if there certainly is no such Pod.
        is_on_node: Whether that Pod is on a Node, where something of it may run.
    """
    if claim is None and is_on_node and _is_before(placement, mark):
        return "unclaimed"  # Somebody has wiped the annotation, and the bus has lost what came after.
    if placement is None or is_behind(placement, claim):
        is_claimed = claim is not None and (claim.job, claim.attempt) == (job, mark.attempt)
        return "ours" if is_claimed else "stray"
    if placement.job == job:
        return "ours"
    if placement.job is None and placement.token_sha256 and placement.attempt == mark.attempt:
        return "undecided"  # It is being submitted, or looked for, right now.
    # Earlier versions counted a gang's attempts anew where all of it was lost: its earlier job is left over.
    if placement.job is not None and placement.attempt == mark.attempt and placement.roster is None:
        return "doubled"
    return "stray"


def _is_before(placement: PlacementState | None, mark: Mark) -> bool:
    """Whether what is stored is of before the job with *mark*, whose intent was stored before it came."""
    if placement is None or mark.attempt > placement.attempt:
        return True
    has_intent = placement.job is not None or bool(placement.token_sha256)
    return mark.attempt == placement.attempt and not has_intent
