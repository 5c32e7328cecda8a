"""nats-py's errors, and the codes of JetStream's, as ours; no I/O."""

from typing import Final

from nats.errors import Error as NatsError
from nats.js.errors import APIError

from sunk_runtime.errors import (
    BusUnavailableError,
    ConflictError,
    FullError,
    JetStreamRejectedError,
    SunkError,
)

FULL_S: Final = 2.0
"""How often it is worth asking whether there is space again."""
_WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
_FULL: Final = frozenset({10002, 10023, 10028, 10047, 10077})
"""The limits of the account, the server's memory and disk, and the stream; the first says 400."""
_SERVERS_FAULT: Final = 500
_LATER: Final = frozenset({10158, 10167})
"""The same id is on its way to the other servers; the stream's queue is full. Both say 4xx."""
_OUR_FAULT: Final = frozenset({10012, 10074})
"""A durable that cannot be changed so, three replicas asked of one server: it calls them its own fault."""
BROKEN: Final = (NatsError, OSError, RuntimeError)
"""What nats-py raises when its connection breaks, and what uvloop does; see `is_of_the_connection`."""


def is_of_the_connection(error: Exception) -> bool:
    """Whether *error* is no bug: uvloop raises `RuntimeError` where a socket was closed a moment ago."""
    return not isinstance(error, RuntimeError) or "closed" in str(error)


def as_ours(doing: str, error: Exception, hint: str = "") -> SunkError:
    """Return our error for *error* of nats-py, met while *doing*; *hint* ends its text if no answer came."""
    if not isinstance(error, APIError) or error.err_code is None:
        return BusUnavailableError(f"{doing}: {type(error).__name__}{hint}")
    if error.err_code in _WRONG_LAST_SEQUENCE:
        return ConflictError(f"{doing}: {error.description}")
    if error.err_code in _FULL:
        return FullError(f"{doing}: {error.description} ({error.err_code})", retry_after_s=FULL_S)
    text = f"{doing}: {error.description} ({error.err_code})"
    is_later = (error.code or 0) >= _SERVERS_FAULT or error.err_code in _LATER
    if is_later and error.err_code not in _OUR_FAULT:
        return BusUnavailableError(text)  # No leader, no answer of its peers.
    return JetStreamRejectedError(text, err_code=error.err_code)
