"""What we write where others can see it: the job's Extra, and the Pod's annotation that names the job.

Both are user-writable, so both are signed: the Extra over Pod, attempt and the Slurm user that the job was
submitted for, the annotation over Pod, attempt and job. A job is a Pod's only if both agree: a user that
copies an Extra to a job of another user, or writes another number on a Pod, has written nothing that is
believed. Earlier versions signed neither user nor job: what they wrote is believed where all else agrees
(`ownership`). The Extra ends in ``: started`` once the placeholder's script has announced itself, as
documented. A job's AdminComment says whose it is too, for its user may wipe the Extra, and nobody but
administrators the AdminComment.

Source: measured on Slurm 24.11 and 26.05 (a job's user may change neither AdminComment, a requeue keeps it).
"""

from typing import Final

import msgspec

from sunk_kube.resources import is_name
from sunk_pod_scheduler.placement import tokens

STARTED: Final = ": started"
_PLACEHOLDER: Final = "placeholder of "
_JOB_END: Final = 1 << 32
"""Slurm's numbers of jobs are less."""
_CLAIM_MAX: Final = 512
"""Characters; ours have less than 200."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The Pod that a placeholder job belongs to."""

    uid: str
    pod: str
    """``namespace/name``, for people: nobody signed it."""
    attempt: int = 0
    mark: str = ""
    user_id: int | None = None
    """The Slurm user that the job was submitted for; None where an earlier version wrote it."""
    user_mark: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Which job is a Pod's placeholder."""

    job: int
    attempt: int = 0
    mark: str = ""
    job_mark: str = ""

    @property
    def is_signed(self) -> bool:
        """Whether we wrote its job number too; it was verified then. Without it anybody may have."""
        return bool(self.job_mark)


class _Extra(msgspec.Struct, frozen=True):
    sunk: Mark


_extras: Final = msgspec.json.Decoder(_Extra)
_claims: Final = msgspec.json.Decoder(Claim)


def extra_text(key: bytes, uid: str, pod: str, attempt: int, user_id: int) -> str:
    """Return the Extra of a placeholder of the Slurm user *user_id* that has not started."""
    signed = Mark(
        uid=uid,
        pod=pod,
        attempt=attempt,
        mark=tokens.mark(key, uid, attempt),
        user_id=user_id,
        user_mark=tokens.user_mark(key, uid, attempt, user_id),
    )
    return msgspec.json.encode(_Extra(signed)).decode()


def read_extra(key: bytes, text: str, user_id: int) -> Mark | None:
    """Return whose placeholder a job of *user_id* with Extra *text* is; None unless we made it for him."""
    try:
        found = _extras.decode(text.removesuffix(STARTED)).sunk
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    # A look for the Pod asks the API server for what is written there.
    if not all(is_name(part) for part in found.pod.split("/")) or found.pod.count("/") != 1:
        return None
    if not tokens.is_mark(found.mark, key, found.uid, found.attempt):
        return None
    if found.user_id is None and not found.user_mark:
        return found
    is_users = tokens.is_user_mark(found.user_mark, key, found.uid, found.attempt, user_id)
    return found if is_users and found.user_id == user_id else None


def admin_comment(whose: str, uid: str, attempt: int) -> str:
    """Return the AdminComment of a placeholder of *whose*; no user can write that: it needs no signature."""
    return f"{_PLACEHOLDER}{whose}{_of_attempt(uid, attempt)}"


def is_admin_comment(text: str, uid: str, attempt: int, pod: str) -> bool:
    """Whether a job's AdminComment says whose placeholder it is. Earlier versions named the *pod* only."""
    if text.startswith(_PLACEHOLDER) and text.endswith(_of_attempt(uid, attempt)):
        return True
    return bool(pod) and text == f"{_PLACEHOLDER}Pod {pod}"


def is_placeholder_of(text: str, uid: str) -> bool:
    """Whether a job's AdminComment says that it is, or was, a placeholder of *uid*, of whichever attempt."""
    return text.startswith(_PLACEHOLDER) and text.endswith(f" of {uid}")


def _of_attempt(uid: str, attempt: int) -> str:
    return f", attempt {attempt} of {uid}"


def started(text: str) -> str:
    """Return the Extra that says that the script has announced itself."""
    return text.removesuffix(STARTED) + STARTED


def is_started(text: str) -> bool:
    """Whether the Extra says that the script has announced itself."""
    return text.endswith(STARTED)


def claim(key: bytes, uid: str, attempt: int, job: int) -> str:
    """Return the value of the Pod's annotation."""
    mark, job_mark = tokens.mark(key, uid, attempt), tokens.claim_mark(key, uid, attempt, job)
    signed = Claim(job=job, attempt=attempt, mark=mark, job_mark=job_mark)
    return msgspec.json.encode(signed).decode()


def read_claim(key: bytes, uid: str, text: str) -> Claim | None:
    """Return what the annotation *text* of the Pod *uid* claims; None unless we wrote it."""
    if len(text) > _CLAIM_MAX:
        return None
    try:
        found = _claims.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if not 0 < found.job < _JOB_END or not tokens.is_mark(found.mark, key, uid, found.attempt):
        return None
    if not found.job_mark:
        return found
    return found if tokens.is_claim_mark(found.job_mark, key, uid, found.attempt, found.job) else None
