"""What we write where others can see it: the job's Extra, and the Pod's annotation that names the job.

Both are user-writable, so both carry the mark of `tokens`, and a job is a Pod's only if both agree. The
Extra ends in ``: started`` once the placeholder's script has announced itself, as documented.
"""

from typing import Final

import msgspec

from sunk_pod_scheduler import tokens

STARTED: Final = ": started"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Whose placeholder a job is."""

    uid: str
    pod: str
    """``namespace/name``, for people."""
    attempt: int = 0
    mark: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Which job is a Pod's placeholder."""

    job: int
    attempt: int = 0
    mark: str = ""


class _Extra(msgspec.Struct, frozen=True):
    sunk: Mark


_extras: Final = msgspec.json.Decoder(_Extra)
_claims: Final = msgspec.json.Decoder(Claim)


def extra_text(key: bytes, uid: str, pod: str, attempt: int) -> str:
    """Return the Extra of a placeholder that has not started."""
    signed = Mark(uid=uid, pod=pod, attempt=attempt, mark=tokens.mark(key, uid, attempt))
    return msgspec.json.encode(_Extra(signed)).decode()


def read_extra(key: bytes, text: str) -> Mark | None:
    """Return whose placeholder a job with Extra *text* is; None unless we made it."""
    try:
        found = _extras.decode(text.removesuffix(STARTED)).sunk
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if tokens.is_mark(found.mark, key, found.uid, found.attempt) else None


def is_started(text: str) -> bool:
    """Whether the Extra says that the script has announced itself."""
    return text.endswith(STARTED)


def claim(key: bytes, uid: str, attempt: int, job: int) -> str:
    """Return the value of the Pod's annotation."""
    signed = Claim(job=job, attempt=attempt, mark=tokens.mark(key, uid, attempt))
    return msgspec.json.encode(signed).decode()


def read_claim(key: bytes, uid: str, text: str) -> Claim | None:
    """Return what the annotation *text* of the Pod *uid* claims; None unless we wrote it."""
    try:
        found = _claims.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if tokens.is_mark(found.mark, key, uid, found.attempt) else None
