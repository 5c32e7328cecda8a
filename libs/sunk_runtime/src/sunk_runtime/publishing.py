"""One message to be stored: its size, its headers, and what becomes of it.

Source: nats-py 2.16; NATS ADR-43 (message TTL).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from sunk_events.codec import MAX_BYTES, OversizeError
from sunk_runtime.errors import ConflictError, LostLeadershipError, SunkError, TransientError
from sunk_runtime.fencing import FENCE_HEADER, Fence
from sunk_runtime.streams import HEADERS_MAX
from sunk_runtime.tracing import outgoing

NOBODY_LEADS: Final = (NoStreamResponseError, ServiceUnavailableError)
"""What a publish meets while the stream's servers choose a leader: it was not stored."""


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
