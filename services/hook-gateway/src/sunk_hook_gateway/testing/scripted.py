"""A gateway that says what it is told to, for the scripts that call it."""

import json
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

ScriptedAnswer = tuple[int, object]
"""Status and body; status 0 closes the connection without an answer, a negative one in the middle of it."""


YES: Final[ScriptedAnswer] = (200, {"locked": True, "gone": True})
"""What ends any call well."""


class ScriptedGateway(ThreadingHTTPServer):
    """Gives its answers one after the other, the last one for ever; knows what it was sent."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.answers: list[ScriptedAnswer] = [YES]
        self.by_path: dict[str, ScriptedAnswer] = {}
        """For calls whose answer depends on who calls."""
        self.delays: dict[str, float] = {}
        """For how many seconds answers are held back, by path."""
        self.sent: list[tuple[str, str | None, dict[str, object]]] = []
        self.location = ""
        """Where each answer redirects to."""
        self.lost = 0
        """So many calls are taken and never answered, as by one whose machine has died."""
        self.over = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def accept_all(self) -> None:
        """Say yes to everybody from now on."""
        self.by_path.clear()
        self.delays.clear()
        self.answers = [YES]
        self.may_answer.set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self._scheme}://127.0.0.1:{self.server_port}"

    def answer(self, path: str) -> ScriptedAnswer:
        """Return what to say to a call of *path*, when it may be said."""
        self.may_answer.wait()
        time.sleep(self.delays.get(path, 0.0))
        if path in self.by_path:
            return self.by_path[path]
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedGateway  # pyright: ignore[reportIncompatibleVariableOverride] - it is the one that starts us

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, object]) -> None:
        self.server.sent.append((self.path, self.headers["Authorization"], body))
        if self.server.lost:
            self.server.lost -= 1
            self.server.over.wait()
        status, content = self.server.answer(self.path)
        if status == 0:
            self.close_connection = True
            return
        answer = json.dumps(content, separators=(",", ":")).encode()
        self.send_response(abs(status))
        self.send_header("Content-Length", str(len(answer)))
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(answer if status > 0 else answer[: len(answer) // 2])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@contextmanager
def scripted_gateway(tls: ssl.SSLContext | None = None) -> Generator[ScriptedGateway]:
    """Run one while the context lasts."""
    server = ScriptedGateway(tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


def refusal(*, drain: bool, hold: bool) -> ScriptedAnswer:
    """Return what a prolog is told at its deadline."""
    reason = "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
    return 409, {"in_the_way": ["ns/web"], "reason": reason, "drain": drain, "hold": hold}
