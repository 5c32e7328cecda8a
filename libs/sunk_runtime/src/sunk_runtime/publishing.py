"""One message to be stored: its size, its headers, and what becomes of it.

What must stay true: it is acknowledged or raises; what is repeated here is the same message, and only while
no server leads its stream.

Source: nats-py 2.16; NATS ADR-43 (message TTL).
"""

import time
from collections.abc import Mapping
from typing import Final

import anyio
import msgspec
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from sunk_events.codec import MAX_BYTES, OversizeError
from sunk_runtime.connection import Connection
from sunk_runtime.errors import (
    BusUnavailableError,
    ConflictError,
    FullError,
    LostLeadershipError,
    SunkError,
    TransientError,
)
from sunk_runtime.fencing import FENCE_HEADER, Fence
from sunk_runtime.metrics import PUBLISH_RETRIES, PUBLISH_SECONDS, PUBLISHES_FAILED
from sunk_runtime.space import Space
from sunk_runtime.streams import HEADERS_MAX
from sunk_runtime.tracing import outgoing

NO_LEADER_ERRORS: Final = (NoStreamResponseError, ServiceUnavailableError)
"""What a publish meets while the stream's servers choose a leader: it was not stored."""
_RETRY_FIRST_S: Final = 0.05
_RETRY_LAST_S: Final = 0.5


class Outgoing(msgspec.Struct, frozen=True):
    """What is to be stored, and on which condition."""

    subject: str
    data: bytes
    msg_id: str | None
    expected_revision: int | None
    ttl_s: int | None
    headers: Mapping[str, str]

    def check_size(self) -> None:
        """Raise `OversizeError` if the server would end the connection over it."""
        size = len(self.data)
        if size > MAX_BYTES:
            raise OversizeError(f"{self.subject}: {size} bytes, at most {MAX_BYTES} are allowed")
        size = len((self.msg_id or "").encode())
        size += sum(len(name) + len(value.encode()) + 4 for name, value in self.headers.items())
        if size > HEADERS_MAX // 2:  # The other half is for what we add.
            raise OversizeError(
                f"{self.subject}: {size} bytes of headers, at most {HEADERS_MAX // 2} are allowed"
            )

    def fresh_headers(self, fence: Fence | None) -> dict[str, str]:
        """Return headers that nobody else holds, after asking *fence*: nats-py changes those it is given."""
        headers = {**outgoing(self.msg_id), **self.headers}
        if self.expected_revision is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(self.expected_revision)
        if self.ttl_s is not None:
            headers["Nats-TTL"] = f"{self.ttl_s}s"
        if fence is not None:
            fence.check()
            headers[FENCE_HEADER] = str(fence.token)
        return headers


def reason(error: SunkError) -> str:
    """Return why a publish failed, in one of four words."""
    match error:
        case ConflictError():
            return "conflict"
        case LostLeadershipError():
            return "fenced"
        case TransientError():
            return "unavailable"
        case _:
            return "refused"


class Publisher:
    """Stores messages over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.space: Final = Space()
        """What the last write showed of it."""
        self._connection = connection

    async def publish(self, sent: Outgoing, fence: Fence | None, *, timeout_s: float, retry_s: float) -> int:
        """Store *sent* and return its stream sequence; while no server leads, again for *retry_s* seconds."""
        sent.check_size()
        began = time.monotonic()
        pause_s = _RETRY_FIRST_S
        try:
            while True:
                try:
                    return await self._once(sent, fence, timeout_s)
                except BusUnavailableError as error:
                    left_s = began + retry_s - time.monotonic()
                    is_led = isinstance(error, FullError) or not isinstance(error.__cause__, NO_LEADER_ERRORS)
                    if left_s <= 0 or is_led:
                        raise
                PUBLISH_RETRIES.inc()
                await anyio.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 2, _RETRY_LAST_S)
        except SunkError as error:
            PUBLISHES_FAILED.labels(reason(error)).inc()
            raise
        finally:
            PUBLISH_SECONDS.observe(time.monotonic() - began)

    async def _once(self, sent: Outgoing, fence: Fence | None, timeout_s: float) -> int:
        if fence is not None and not self._connection.client.is_connected:
            # It would be kept and go out at the reconnect, when somebody else may lead.
            raise BusUnavailableError(f"publish on {sent.subject}: there is no connection")
        headers = sent.fresh_headers(fence)
        with self.space.noting():
            return await self._connection.stored(sent.subject, sent.data, headers, timeout_s)
