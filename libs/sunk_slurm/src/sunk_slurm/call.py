"""A call of slurmrestd, before anybody makes it."""

import math

import msgspec

from sunk_slurm.errors import TooLateError
from sunk_slurm.tokens import Tokens


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of slurmrestd."""

    name: str
    """Its kind, for metrics."""
    doing: str
    """What it is for, in the words of an operator: ``drain gpu-000-012``."""
    path: str
    """Behind the version; names in it are quoted already."""
    method: str = "GET"
    body: bytes | None = None
    params: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 5.0
    send_until: float = math.inf
    """Until when it may be sent, in monotonic time: its turn may come when what it rests on is old."""
    may_repeat: bool = True
    """Carrying it out twice is carrying it out once."""
    version: str = ""
    """The API version that alone has it; empty: the one in use."""
    is_accounting: bool = False
    """slurmdbd is to answer it, which not every slurmrestd asks."""
    tokens: Tokens | None = None
    """The tokens of the user that it is made as; None: our own."""

    def check_in_time(self, now: float) -> None:
        """Raise `TooLateError` after `send_until`."""
        if now > self.send_until:
            raise TooLateError(f"{self.doing}: its turn came too late")
