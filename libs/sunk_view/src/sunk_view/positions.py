"""How far a reader knows a table, as the text that it brings back. Pure.

The text says how far each bucket of the table was read, by the bucket's own revisions: so another replica
goes on from it. A bucket that was made again counts from 1, so the text names which bucket that was. What
went is known for an hour only, so a text is good for less than that.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

AFTER_CHARS: Final = 8192
GOOD_S: Final = 900
LAG_S: Final = 20
"""So long after one replica has seen a bucket go back, another one may still say positions of before: it
hears of a silent bus later, and clocks differ."""
_DIGITS: Final = 19
_PARTS: Final = 4


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far the buckets of one table were read, of one Slurm cluster."""

    mark: str
    """Of these buckets, as they were made."""
    time_s: int
    """When that was, in seconds of the epoch."""
    revisions: tuple[int, ...]
    """Of each bucket, in the table's own order."""


def mark(created: Iterable[str], secret: bytes = b"") -> str:
    """Return what tells buckets that were *created* then, and keys of rows by *secret*, from others."""
    return hashlib.blake2s("\n".join(created).encode(), key=secret, digest_size=6).hexdigest()


def key_of(uid: str, secret: bytes) -> str:
    """Return what tells the row of a Pod or gang from others, and cannot be guessed.

    The uid of a gang is made of names: who reads its digest without a *secret* tries names until one fits.
    """
    return hashlib.blake2s(uid.encode(), key=secret, digest_size=12).hexdigest()


def row_secret(private_key: bytes) -> bytes:
    """Return a secret for `key_of` that all replicas with the *private_key* have."""
    return hashlib.blake2s(private_key, person=b"row keys").digest()


def written(positions: Mapping[str, Position]) -> str:
    """Return *positions* by cluster as text."""
    return ",".join(
        f"{cluster}.{at.mark}.{at.time_s}.{'-'.join(map(str, at.revisions))}"
        for cluster, at in sorted(positions.items())
    )


def read(text: str) -> dict[str, Position]:
    """Return what `written` wrote.

    Raises:
        ValueError: it wrote no such thing.
    """
    found: dict[str, Position] = {}
    if len(text) > AFTER_CHARS:
        raise ValueError(text[:20])
    for part in text.split(","):
        words = part.split(".")
        if len(words) != _PARTS or not words[1].isalnum():
            raise ValueError(part[:20])
        numbers = [words[2], *words[3].split("-")]
        if not all(number.isascii() and number.isdecimal() and len(number) <= _DIGITS for number in numbers):
            raise ValueError(part[:20])
        time_s, *revisions = map(int, numbers)
        found[words[0]] = Position(mark=words[1], time_s=time_s, revisions=tuple(revisions))
    return found


def is_good(
    position: Position | None, now: Position, *, went_back_s: float = math.inf, known_s: float = math.inf
) -> bool:
    """Whether what changed after *position* is known to a replica at *now*.

    Args:
        position: Where a reader was.
        now: Of the same buckets, now.
        went_back_s: How long ago one of them was last seen to go back.
        known_s: For how long the replica has known all of them.
    """
    if position is None or position.mark != now.mark or len(position.revisions) != len(now.revisions):
        return False
    age_s = now.time_s - position.time_s
    return abs(age_s) <= GOOD_S and age_s < went_back_s - LAG_S and age_s < known_s + 1  # Whole seconds.
