"""Keys of a Slurm cluster and the tokens made with them.

Source: Slurm's jwt.html: HS256 over ``exp``, ``iat`` and ``sun``, the user's name.
"""

import secrets
import time
from dataclasses import dataclass

import jwt


@dataclass(frozen=True, kw_only=True)
class Keys:
    """What a cluster is founded on; whoever has either is its root."""

    slurm: bytes
    """Of auth/slurm: the daemons know each other by it."""
    jwt: bytes
    """Of auth/jwt: tokens are made with it."""


def new_keys() -> Keys:
    """Return keys nobody else has."""
    return Keys(slurm=secrets.token_bytes(64), jwt=secrets.token_bytes(32))


def new_token(jwt_key: bytes, *, user: str = "root", lifespan_s: int = 86400) -> str:
    """Return a token that slurmrestd takes for *user*, valid from now."""
    now = int(time.time())
    return jwt.encode({"exp": now + lifespan_s, "iat": now, "sun": user}, jwt_key, algorithm="HS256")
