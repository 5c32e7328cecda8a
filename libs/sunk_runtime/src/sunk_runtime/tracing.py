"""W3C trace context in message headers, and the spans of what is published, asked and answered.

What must stay true: without an endpoint nothing of OpenTelemetry runs, and what nobody records costs nothing;
a collector that is away holds up neither a message nor the end of the process.

Source: OpenTelemetry's semantic conventions for messaging; the W3C's Trace Context.
"""

import logging
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Meta
from opentelemetry import context, propagate, trace
from opentelemetry.trace import SpanKind, Tracer

from sunk_events.base import UNKNOWN, Cause
from sunk_runtime.errors import ConfigError

log = logging.getLogger(__name__)

EXPORT_S: Final = 2.0
"""How long one export may take, and how long the end of the process waits for the last one."""
_TRACES_PATH: Final = "/v1/traces"
_KINDS: Final = {
    "publish": SpanKind.PRODUCER,
    "store": SpanKind.PRODUCER,
    "ask": SpanKind.CLIENT,
    "answer": SpanKind.SERVER,
    "handle": SpanKind.CONSUMER,
}

_CAUSE: Final = ContextVar("cause", default=UNKNOWN)

Operation = Literal["publish", "store", "ask", "answer", "handle"]
"""What a span is of; its name begins with it."""


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where spans go, and how many."""

    endpoint: str = ""
    ratio: Annotated[float, Meta(ge=0, le=1)] = 0.1


class _State:
    """The tracer, while there is one."""

    tracer: Tracer | None = None


@asynccontextmanager
async def tracing(service: str, settings: TraceSettings) -> AsyncGenerator[None]:
    """Send the spans of *service* to a collector while the context lasts; without an endpoint do nothing.

    Raises:
        ConfigError: the endpoint is no URL of HTTP.
    """
    if not settings.endpoint:
        yield
        return
    url = traces_url(settings.endpoint)
    # Here, as it takes 0.3 s and 20 MiB that nobody without a collector shall pay for.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_S)
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.ratio)),
        resource=Resource.create({SERVICE_NAME: f"sunk-{service}"}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _State.tracer = provider.get_tracer("sunk_runtime")
    log.info("traces go out", extra={"endpoint": url, "ratio": settings.ratio})
    try:
        yield
    finally:
        _State.tracer = None
        with anyio.move_on_after(EXPORT_S, shield=True):
            await anyio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def traces_url(endpoint: str) -> str:
    """Return where spans are posted: the endpoint is the base, as in ``OTEL_EXPORTER_OTLP_ENDPOINT``.

    Raises:
        ConfigError: it is no URL of HTTP.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ConfigError(f"traces endpoint {endpoint!r} must be a URL such as http://collector:4318")
    return endpoint if parts.path.endswith(_TRACES_PATH) else endpoint.rstrip("/") + _TRACES_PATH


@contextmanager
def span(
    operation: Operation, what: str, subject: str, headers: Mapping[str, str] | None = None
) -> Generator[None]:
    """Be inside a span of what is done with a message on *subject*.

    Args:
        operation: What is done.
        what: With a message of which type; few different ones, as it names the span.
        subject: The NATS subject.
        headers: Of the message that led to it; the span continues the sender's trace.
    """
    tracer = _State.tracer
    if tracer is None:
        yield
        return
    parent = propagate.extract(dict(headers)) if headers is not None else None
    attributes = {"messaging.system": "nats", "messaging.destination.name": subject}
    with tracer.start_as_current_span(f"{operation} {what}", parent, _KINDS[operation], attributes):
        yield


@contextmanager
def continuing(cause: Cause) -> Generator[None]:
    """Have spans that begin here be of the trace in which *cause* happened, where one is known."""
    if _State.tracer is None or not cause.trace:
        yield
        return
    token = context.attach(propagate.extract({"traceparent": cause.trace}))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def because(cause: Cause) -> Generator[None]:
    """Have it that facts and log lines name *cause*, whose trace they continue."""
    token = _CAUSE.set(cause)
    try:
        with continuing(cause):
            yield
    finally:
        _CAUSE.reset(token)


@contextmanager
def acting(what: str, entity: str, cause: Cause, *, has_caller: bool = False) -> Generator[None]:
    """Be inside a span of what is done to *entity* `because` of *cause*.

    Args:
        what: What is done; few different ones, as it names the span.
        entity: What it happened to.
        cause: What led to it.
        has_caller: A caller waits for it.
    """
    with because(cause):
        tracer = _State.tracer
        if tracer is None:
            yield
            return
        kind = SpanKind.SERVER if has_caller else SpanKind.CLIENT
        attributes = {"sunk.entity": entity, "sunk.cause": cause.id}
        with tracer.start_as_current_span(what, None, kind, attributes):
            yield


def cause_now() -> Cause:
    """Return `because` of what something is done now."""
    return _CAUSE.get()


def here(event: str) -> Cause:
    """Return what is done now as a cause: under the id *event*, in the trace of the current span."""
    if _State.tracer is None:
        return Cause(event)
    return Cause(event, outgoing().get("traceparent", ""))


def note(name: str, value: str) -> None:
    """Put an attribute on the current span, if there is one."""
    if _State.tracer is not None:
        trace.get_current_span().set_attribute(name, value)


def outgoing(msg_id: str | None = None) -> dict[str, str]:
    """Return fresh headers of a message that we send inside the current span."""
    headers: dict[str, str] = {"Nats-Msg-Id": msg_id} if msg_id else {}
    if _State.tracer is not None:
        propagate.inject(headers)
    return headers
