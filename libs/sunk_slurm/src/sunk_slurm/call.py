"""A call of slurmrestd, before anybody makes it."""

import msgspec

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
    may_repeat: bool = True
    """Carrying it out twice is carrying it out once."""
    version: str = ""
    """The API version that alone has it; empty: the one in use."""
    is_accounting: bool = False
    """slurmdbd is to answer it, which not every slurmrestd asks."""
    tokens: Tokens | None = None
    """The tokens of the user that it is made as; None: our own."""
