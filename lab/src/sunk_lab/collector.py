"""A collector of OpenTelemetry: takes spans over HTTP, as OTLP has it, and keeps them.

Source: the OTLP specification (``POST /v1/traces`` with a protobuf body).
"""

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Received(NamedTuple):
    """One span and the service that sent it."""

    service: str
    span: Span


class Served:
    """A server that answers in a thread of its own while the context lasts."""

    _server: ThreadingHTTPServer

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Collector(Served):
    """Listens on *host* while the context lasts. `received` has all spans, in the order of their arrival."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.received: list[Received] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_known = self.path == "/v1/traces"
                if is_known:
                    collector.received += spans_of(ExportTraceServiceRequest.FromString(body))
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Write no line for each request."""

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}"
        """What a service's endpoint for traces is set to."""

    def named(self, name: str) -> Span:
        """Return the one span that is called *name*."""
        (found,) = [one.span for one in self.received if one.span.name == name]
        return found

    def trace(self, trace_id: bytes) -> list[Received]:
        """Return the spans of one trace, the earliest first."""
        found = [one for one in self.received if one.span.trace_id == trace_id]
        return sorted(found, key=lambda one: (one.span.start_time_unix_nano, one.span.name))


def spans_of(request: ExportTraceServiceRequest) -> Sequence[Received]:
    """Return the spans of one export, each with the name of its service."""
    found: list[Received] = []
    for resource in request.resource_spans:
        names = {one.key: one.value.string_value for one in resource.resource.attributes}
        spans = [span for scope in resource.scope_spans for span in scope.spans]
        found += [Received(names["service.name"], span) for span in spans]
    return found
