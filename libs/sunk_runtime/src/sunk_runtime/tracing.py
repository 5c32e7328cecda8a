"""W3C trace context in message headers: put in and taken out here, and nowhere else.

Without a configured exporter the spans are no-ops and cost next to nothing.
"""

from collections.abc import Mapping

from opentelemetry import propagate
from opentelemetry.context import Context


def outgoing(msg_id: str | None = None) -> dict[str, str]:
    """Return fresh headers of a message that we send inside the current span."""
    headers: dict[str, str] = {"Nats-Msg-Id": msg_id} if msg_id else {}
    propagate.inject(headers)
    return headers


def incoming(headers: Mapping[str, str] | None) -> Context:
    """Return the trace context that a message carries."""
    return propagate.extract(dict(headers or {}))
