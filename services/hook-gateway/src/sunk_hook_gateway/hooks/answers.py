"""A reply, or its absence, to an HTTP status and body; and what a refused prolog must do.

What must stay true: no answer is never "no"; at most ``max(2, 1 %)`` of the nodes are drained because a
lock failed, whatever holds the locks up: beyond that the job is held and its node is not drained. The
nodeset-controller decides that; each replica counts for itself too, for a leave may be an old one.

Source: design of the lock, step 4.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sunk_events.base import Reply
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    BlockingPod,
    Explanation,
    JobNotRunning,
    Later,
    LockGranted,
    LockWaiting,
    Noted,
    PlacementReleased,
    Refused,
)
from sunk_slurm.failed_locks import REASON_PREFIX

VERIFY_TAG: Final = "(sunk:verify-undrain)"
_SHOWN_PODS: Final = 4
_SHOWN_WHY: Final = 90
_REASON_MAX: Final = 512
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9 ._/:,()+=@-]")
"""The prolog has no JSON parser: quotes and escapes must not occur in a reason."""

_REFUSED: Final[Mapping[str, int]] = {
    "unknown_node": 404,
    "unknown_job": 404,
    "forbidden": 403,
    "malformed": 400,
}
_REFUSED_OTHERWISE: Final = 500


class Answer(msgspec.Struct, frozen=True):
    """An HTTP status and, but for 204, a JSON body."""

    status: int
    content: Mapping[str, Any] | None = None


RETRY: Final = Answer(503, {"retry": True})
"""Nothing was decided: the same call again, to any replica."""


LOCKED: Final = Answer(200, {"locked": True})
HELD: Final = Answer(202, {"locked": False})
"""Not yet: the same call again, to any replica."""


def held(message: str) -> Answer:
    """Return `HELD`, with what the prolog shall tell who waits at a terminal."""
    return Answer(202, {"locked": False, "say": printable(message)}) if message else HELD


def printable(text: str) -> str:
    """Return *text* in characters that the prolog can read."""
    return _UNSAFE.sub("_", text)[:_REASON_MAX]


def retry(why: str) -> Answer:
    """Return `RETRY` with the reason."""
    return Answer(503, {"retry": True, "error": why})


def failed(status: int, why: str) -> Answer:
    """Return an answer that the same call would get again."""
    return Answer(status, {"error": why})


def acquired(reply: Reply) -> Answer | None:
    """Return what the prolog is told, or None while it waits."""
    match reply:
        case LockGranted():
            return LOCKED
        case JobNotRunning(state=state):
            # A prolog that fails after its job was cancelled would bring the job back.
            return Answer(200, {"locked": False, "state": state})
        case Refused():
            return refused(reply)
        case _:
            return None


def refused(reply: Refused) -> Answer:
    """Return the status of a refusal: asking again would not help."""
    return failed(_REFUSED.get(reply.code, _REFUSED_OTHERWISE), reply.reason)


def in_the_way(waiting: LockWaiting | None, *, may_drain: bool) -> Answer:
    """Return the refusal at the deadline, with what the prolog must do.

    Args:
        waiting: What the lock said last; None if it never answered.
        may_drain: Whether one more node may be drained by a failed lock. If not the job is held, for it
            would be put on the same node again.
    """
    drain = may_drain and (waiting is None or waiting.is_drain_allowed)
    return Answer(
        409,
        {
            "in_the_way": sorted(waiting.in_the_way) if waiting is not None else [],
            "reason": drain_reason(waiting),
            "drain": drain,
            "hold": not drain or (waiting is not None and waiting.is_hold_needed),
            # Last, for the prolog has no JSON parser: other people's words come after what it looks for.
            "blocking": msgspec.to_builtins(waiting.blocking) if waiting is not None else [],
        },
    )


def prolog_action(refusal: Answer) -> str:
    """Return in a word what the prolog does that gets *refusal*."""
    content = refusal.content or {}
    return next((action for action in ("drain", "hold") if content.get(action)), "requeue")


def kept_back(reason: str) -> Answer:
    """Return the refusal of a job that other nodes keep from its start: this one is as it should be."""
    no_pods: list[str] = []
    return Answer(409, {"in_the_way": no_pods, "reason": _reason(reason), "drain": False, "hold": False})


def drain_reason(waiting: LockWaiting | None) -> str:
    """Return the drain's reason: the first few Pods with what keeps them, in characters without quotes."""
    if waiting is None:
        text = "the lock did not answer"
    elif not waiting.in_the_way:
        text = "not locked in time"
    else:
        why = {one.pod: _kept(one) for one in waiting.blocking}
        shown = sorted(waiting.in_the_way)[:_SHOWN_PODS]
        more = len(waiting.in_the_way) - len(shown)
        text = ", ".join(pod + why.get(pod, "") for pod in shown) + (f" and {more} more" if more else "")
    return _reason(text)


def _reason(text: str) -> str:
    head = f"{REASON_PREFIX}: {_UNSAFE.sub('_', text)}"
    return f"{head[: _REASON_MAX - len(VERIFY_TAG) - 1]} {VERIFY_TAG}"


def _kept(one: BlockingPod) -> str:
    """Return what keeps a Pod, and since when."""
    since = f", since {one.since:%H:%M:%S} UTC" if one.since is not None else ""
    return f" ({one.because[:_SHOWN_WHY]}{since})" if one.because or since else ""


def noted(reply: Reply | None) -> Answer:
    """Return what the caller of an announcement, a nudge or a lock's release is told."""
    match reply:
        case Noted():
            return Answer(200, {})
        case Refused():
            return refused(reply)
        case _:
            return RETRY


def explained(reply: Reply | None) -> Answer:
    """Return what a user of Slurm is told of a job."""
    match reply:
        case Explanation(findings=findings):
            return Answer(200, {"findings": msgspec.to_builtins(findings)})
        case Refused():
            return refused(reply)
        case Later(reason=reason):
            return retry(reason)
        case _:
            return retry("the syncer does not answer: no replica leads, or it is busy")


def released(reply: Reply | None) -> Answer:
    """Return what the caller of a placeholder's release is told; 202 means: ask again."""
    match reply:
        case PlacementReleased(is_pod_gone=True):
            return Answer(200, {"gone": True})
        case PlacementReleased(pod=pod):
            return Answer(202, {"gone": False, "pod": pod})
        case Refused():
            return refused(reply)
        case _:
            return RETRY


def left(placement: PlacementState | None) -> Answer:
    """Return what an epilog is told while nobody says that the Pod is gone; None: its placement is lost."""
    pod = f"{placement.namespace}/{placement.pod}" if placement is not None else ""
    return Answer(202, {"gone": False, "pod": pod})


def outcome(known: PlacementState, present: PlacementState | None) -> Answer | None:
    """Return how the placeholder's script shall end, or None while its Pod lives.

    Args:
        known: The placement as it was last seen with this job.
        present: The same Pod's placement now. None says nothing of the Pod: placements are forgotten once
            their jobs have ended, so one that a script still polls for is lost, and will be stored anew.
    """
    if present is None:
        return None
    if present.attempt < known.attempt:
        return None  # It is of before: the bus has lost what came since.
    if present.job != known.job and present.attempt > known.attempt:
        return Answer(200, {"exit_code": 0})  # Another job has the Pod's place.
    if present.is_pod_present and present.phase != "ended":
        return None
    return Answer(200, {"exit_code": present.exit_code or 0})
