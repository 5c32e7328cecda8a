"""Reservations as slurmrestd shows them.

Source: the OpenAPI documents of slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.44), ``reservation_info``.
"""

import msgspec

from sunk_slurm.wire import NO_NUMBER, Answer, Number


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm reservation."""

    name: str
    node_list: str = ""
    node_count: int = 0
    core_count: int = 0
    partition: str = ""
    users: str = ""
    """Comma-separated, as are accounts and groups."""
    accounts: str = ""
    groups: str = ""
    flags: tuple[str, ...] = ()
    start_time: Number = NO_NUMBER
    end_time: Number = NO_NUMBER


class ReservationsAnswer(Answer, frozen=True, kw_only=True):
    """GET reservations/."""

    reservations: tuple[Reservation, ...] = ()
