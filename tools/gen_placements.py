"""Writes `docs/placements.md` and its drawing: the phases of a placement, from its decisions.

The pod-scheduler's decision is called with each phase, and with each Pod and job that matters. A change of
phase without a text here, and a text without a change, end the generator. ``--check`` as in `gen_schemas.py`.
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Final, get_args

from drawings import END, START, Change, ladder
from generated import settle
from msgspec.structs import replace

from sunk_events.placements import PlacementPhase, PlacementState
from sunk_pod_scheduler.placement.actions import Action, Forget, ReportLoss, Submit
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobUnknown, PodSeen
from sunk_pod_scheduler.testing.builders import KUBE_NODE, SLURM_NODE, T0, job, placement, pod, seen

PAGE: Final = Path("docs/placements.md")
PICTURE: Final = Path("docs/pictures/placement.svg")
NONE: Final = "none"
"""No placement: none yet, or none any more."""
LATER: Final = T0 + timedelta(hours=1)
PODS: Final[tuple[PodSeen | None, ...]] = (
    None,
    pod(),
    pod(problems=("no memory",)),
    pod(is_terminating=True),
    pod(kube_node=KUBE_NODE),
    pod(kube_node=KUBE_NODE, is_terminating=True),
    pod(kube_node=KUBE_NODE, is_over=True),
)
JOBS: Final[tuple[AnyJob, ...]] = (
    JobUnknown(),
    JobGone(),
    JobGone(has_ended=True),
    JobGone(is_lost=True),
    job("PENDING", is_held=True),
    job("PENDING"),
    job(),
    job(is_marked_started=True),
    job("COMPLETED"),
)
PHASES: Final[Mapping[PlacementPhase, str]] = {
    "refused": "The Pod has an error. It has no job, and waits until it is changed",
    "submitted": "Slurm has the job, held, or is about to get it",
    "released": "The job waits in Slurm's queue, or its prolog waits for the lock",
    "started": "The job's script has called the hook gateway: the Node is locked for the Pod",
    "bound": "The Pod is bound to its Node",
    "ending": "The Pod is deleted. The job stays until the Pod is gone",
    "ended": "The Pod is gone, or has finished. The job ends",
}
CHANGES: Final[Mapping[tuple[str, str], str]] = {
    (NONE, "submitted"): "a valid Pod",
    (NONE, "refused"): "a Pod with an error",
    ("refused", "submitted"): "the error is gone",
    ("refused", NONE): "the Pod is gone",
    ("submitted", "refused"): "the next job would have an error",
    ("submitted", "released"): "the job's id is stored, and the job is released",
    ("submitted", "started"): "the script calls",
    ("released", "submitted"): "another job, for the first is lost or of no use",
    ("released", "started"): "the script calls",
    ("started", "submitted"): "another job, for the first is lost or its node does not fit",
    ("started", "bound"): "the Node fits",
    ("bound", "submitted"): "slurmctld has lost the job, another is due",
    ("submitted", "ending"): "a bound Pod is deleted, or may not stay",
    ("released", "ending"): "a bound Pod is deleted, or may not stay",
    ("started", "ending"): "a bound Pod is deleted, or may not stay",
    ("bound", "ending"): "the job or the Pod ends",
    ("submitted", "ended"): "the Pod is gone",
    ("released", "ended"): "the Pod is gone",
    ("started", "ended"): "the Pod is gone",
    ("bound", "ended"): "the Pod is gone or has finished",
    ("ending", "ended"): "the Pod is gone or has finished",
    ("ended", NONE): "the job is over",
}
"""What leads from one phase to another, for people."""
HEAD: Final = """# The phases of a placement

`./task gen` writes this page from what the pod-scheduler decides; do not edit it by hand. The decision is
[decide.py](../services/pod-scheduler/src/sunk_pod_scheduler/placement/decide.py).

A *placement* is a Pod that Slurm places, with its placeholder job. Its phase is stored on the bus, and
`sunk-bus state placement` ([bus.md](bus.md)) shows it. [pod-scheduler.md](pod-scheduler.md) explains how a
Pod starts and ends.

| phase | what is so |
| --- | --- |
"""
DRAWN: Final = """
A Pod that is bound and whose job slurmctld has lost goes back to `submitted`, and runs on. Until it has
another job, a Pod in the phases `submitted`, `released` and `started` may be bound.

## From phase to phase

![State diagram of a placement. The table below has the same changes.](pictures/placement.svg)

| from | to | when |
| --- | --- | --- |
"""
AFTER: Final = """
A gang has a placement of its own, with the same phases ([gangs.md](gangs.md)). If the bus loses the
placements, the pod-scheduler restores each one from the annotation on its Pod. Such a placement begins as
`submitted`, or as `bound` if slurmctld has lost the job too. A placement that is older than the binding of
its Pod also goes to `bound` if slurmctld has lost the job.
"""


def changes() -> set[tuple[str, str]]:
    """Return each change of phase that a decision leads to."""
    found: set[tuple[str, str]] = set()
    for phase in (None, *get_args(PlacementPhase)):
        for before, one, its_job, node, is_requested in product(
            _placements(phase), PODS, JOBS, ("", SLURM_NODE), (False, True)
        ):
            known = seen(one, before, its_job, announced_on=node, is_release_requested=is_requested)
            action = decide(known, LATER, Limits())
            if isinstance(action, ReportLoss):  # What follows is decided once the loss is stored.
                known = replace(known, placement=replace(action.state, lost=T0))
                action = decide(known, LATER, Limits())
            after = _phase_after(action)
            if after and after != phase:
                found.add((phase or NONE, after))
    return found - {(NONE, NONE)}


def _placements(phase: PlacementPhase | None) -> Iterator[PlacementState | None]:
    if phase is None:
        yield None
        return
    node = SLURM_NODE if phase in {"started", "bound", "ending"} else ""
    # Only a placement that is about to get a job has none, until its Pod is over.
    for has_job, lost in product((True, False) if phase == "submitted" else (True,), (None, T0)):
        made = placement(phase, node=node) if has_job else placement(phase, job=None, node=node, digest="")
        yield replace(made, lost=lost)


def _phase_after(action: Action) -> str:
    match action:
        case Submit():
            return "submitted"
        case Forget():
            return NONE
        case _:
            state = getattr(action, "state", None)
            return state.phase if isinstance(state, PlacementState) else ""


def pages() -> dict[Path, str]:
    """Return the page and its drawing.

    Raises:
        SystemExit: A change of phase has no text, or a text has no change; names them.
    """
    if wrong := changes() ^ CHANGES.keys():
        raise SystemExit(f"tools/gen_placements.py: these changes of phase are new, or no more: {wrong}")
    rows = "".join(f"| `{phase}` | {text} |\n" for phase, text in PHASES.items())
    ways = "".join(
        f"| {_named(before)} | {_named(after)} | {text} |\n" for (before, after), text in CHANGES.items()
    )
    drawn = ladder(
        "The phases of a placement",
        (START, *PHASES, END),
        tuple(
            Change(START if before == NONE else before, END if after == NONE else after, text)
            for (before, after), text in CHANGES.items()
        ),
    )
    return {PAGE: HEAD + rows + DRAWN + ways + AFTER, PICTURE: drawn}


def _named(phase: str) -> str:
    return "no placement" if phase == NONE else f"`{phase}`"


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle(pages(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
