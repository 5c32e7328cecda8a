"""What proves that a job is the placeholder of one Pod's one attempt: a secret token and a public mark.

The token stands in that job's environment only; others are given its digest. The mark stands where a
job's user can read and write, so it must not tell the token. Both are made of the same key, so a restarted
scheduler knows its own again without having stored either.
"""

import hashlib
import hmac
from typing import Final

KEY_BYTES_MIN: Final = 32
_MARK_LENGTH: Final = 32


def token(key: bytes, uid: str, attempt: int) -> str:
    """Return the token of the placeholder for attempt *attempt* at placing the Pod *uid*."""
    return _signed(key, "token", uid, attempt)


def digest(token: str) -> str:
    """Return what others may know of *token*, in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_token(given: str, key: bytes, uid: str, attempt: int) -> bool:
    """Whether *given* is the token, compared without telling by the time it takes."""
    return hmac.compare_digest(given.encode(), token(key, uid, attempt).encode())


def mark(key: bytes, uid: str, attempt: int) -> str:
    """Return the mark of the same placeholder."""
    return _signed(key, "mark", uid, attempt)[:_MARK_LENGTH]


def is_mark(given: str, key: bytes, uid: str, attempt: int) -> bool:
    """Whether *given* is the mark."""
    return hmac.compare_digest(given.encode(), mark(key, uid, attempt).encode())


def claim_mark(key: bytes, uid: str, attempt: int, job: int) -> str:
    """Return what proves that we wrote that *job* is the placeholder."""
    return _signed(key, f"claim of {job}", uid, attempt)[:_MARK_LENGTH]


def is_claim_mark(given: str, key: bytes, uid: str, attempt: int, job: int) -> bool:
    """Whether *given* is that proof."""
    return hmac.compare_digest(given.encode(), claim_mark(key, uid, attempt, job).encode())


def user_mark(key: bytes, uid: str, attempt: int, user_id: int) -> str:
    """Return what proves that we submitted the placeholder for the Slurm user *user_id*."""
    return _signed(key, f"user {user_id}", uid, attempt)[:_MARK_LENGTH]


def is_user_mark(given: str, key: bytes, uid: str, attempt: int, user_id: int) -> bool:
    """Whether *given* is that proof."""
    return hmac.compare_digest(given.encode(), user_mark(key, uid, attempt, user_id).encode())


def _signed(key: bytes, what: str, uid: str, attempt: int) -> str:
    return hmac.new(key, f"{what}:{uid}:{attempt}".encode(), hashlib.sha256).hexdigest()
