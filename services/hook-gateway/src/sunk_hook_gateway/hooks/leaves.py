"""Leaves to drain a node, which all replicas of the gateway count together, as the bus keeps them; pure.

What must stay true: what cannot be read is unknown, and never "no leave was given"; a leave counts for no
longer than `LEAVE_S`, whatever the other's clock says.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from sunk_runtime.errors import TransientError
from sunk_slurm.failed_locks import LEAVE_S


class Leaves(msgspec.Struct, frozen=True):
    """What the bus keeps: until when each leave counts, by node."""

    until: dict[str, datetime]


def left(data: bytes, now: datetime) -> dict[str, float]:
    """Return for how many seconds each leave in *data* still counts, by node; those that are over are gone.

    Raises:
        TransientError: *data* cannot be read.
    """
    if not data:
        return {}
    try:
        until = msgspec.json.decode(data, type=Leaves).until
        counts_s = {node: (end - now).total_seconds() for node, end in until.items()}
    except (msgspec.DecodeError, TypeError, RecursionError) as error:  # A time without a zone is none.
        raise TransientError(f"leaves on the bus: {error}") from error
    return {node: min(left_s, LEAVE_S) for node, left_s in counts_s.items() if left_s > 0}


def with_one_more(counts_s: Mapping[str, float], node: str, now: datetime) -> bytes:
    """Return what the bus is to keep when *node* is given leave too."""
    all_of_them = {**counts_s, node: LEAVE_S}
    until = {one: now + timedelta(seconds=left_s) for one, left_s in all_of_them.items()}
    return msgspec.json.encode(Leaves(until))
