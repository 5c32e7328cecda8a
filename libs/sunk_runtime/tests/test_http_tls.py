"""TLS with client certificates, and handshakes on a machine that is busy."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sunk_lab.ports import free_port
from sunk_runtime.http import Health, serve_http
from sunk_runtime.http_guard import common_name, line_of
from sunk_runtime.testing import until

PAUSE_S = 0.2


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate that signs itself."""
    crt, key = folder / f"{name}.crt", folder / f"{name}.key"
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(
        [*made, "-subj", f"/CN={name}", "-keyout", key, "-out", crt], check=True, capture_output=True
    )
    return crt, key


def get(port: int, mine: tuple[Path, Path] | None = None, *, before: bytes = b"") -> bytes:
    """Send the first words of the handshake right after connecting, then ask; return what is answered."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if mine is not None:
        context.load_cert_chain(*mine)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(before)

        def step(what: Callable[[], object]) -> object:
            while True:
                try:
                    result = what()
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    if not (data := connection.recv(65536)):
                        raise ConnectionError("the server closed the connection") from None
                    incoming.write(data)
                    continue
                connection.sendall(outgoing.read())
                return result

        step(tls.do_handshake)
        step(lambda: tls.write(b"GET /who HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.partition(b"\r\n\r\n")[2]:
            answer += bytes(step(lambda: tls.read(65536)))  # type: ignore[call-overload, arg-type]
    return answer.partition(b"\r\n\r\n")[2]


async def who(request: Request) -> Response:
    return PlainTextResponse(f"<{line_of(request).common_name}>")


def served(tls: ssl.SSLContext, ask: Callable[[int], None], *, is_busy: bool) -> None:
    """Serve with uvloop, as services do, while *ask* runs in a thread."""

    async def main() -> None:
        port, health = free_port(), Health()
        serve = partial(serve_http, "127.0.0.1", port, health, [Route("/who", who)], tls=tls)
        health.require("asked for", lambda: True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await anyio.lowlevel.checkpoint()
            await until(lambda: not health.missing())
            thread = threading.Thread(target=ask, args=(port,))
            thread.start()
            while thread.is_alive():
                if is_busy:
                    time.sleep(PAUSE_S)  # noqa: ASYNC251 - the machine has no time for this process
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    anyio.run(main, backend_options={"use_uvloop": True})


def context(folder: Path, trusted: Path | None = None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*certificate(folder, "server"))
    if trusted is not None:
        made.load_verify_locations(cafile=trusted)
        made.verify_mode = ssl.CERT_REQUIRED
    return made


def test_a_handshake_that_begins_before_the_server_looks_is_answered(tmp_path: Path) -> None:
    found: list[bytes] = []
    served(context(tmp_path), lambda port: found.extend(get(port) for _ in range(5)), is_busy=True)

    assert found == [b"<>"] * 5


def test_a_verified_client_certificate_is_known_by_its_name(tmp_path: Path) -> None:
    mine = certificate(tmp_path, "front-proxy-client")
    found: list[bytes] = []
    served(context(tmp_path, mine[0]), lambda port: found.append(get(port, mine)), is_busy=False)

    assert found == [b"<front-proxy-client>"]


@pytest.mark.parametrize("is_busy", [False, True])
def test_without_the_right_certificate_nothing_is_answered(tmp_path: Path, *, is_busy: bool) -> None:
    trusted, other = certificate(tmp_path, "trusted"), certificate(tmp_path, "other")
    refused: list[str] = []

    def ask(port: int) -> None:
        for mine in (None, other):
            try:
                get(port, mine)
            except (OSError, ssl.SSLError) as error:
                refused.append(type(error).__name__)

    served(context(tmp_path, trusted[0]), ask, is_busy=is_busy)

    assert len(refused) == 2


def test_words_before_the_handshake_are_never_taken_for_a_request(tmp_path: Path) -> None:
    mine = certificate(tmp_path, "front-proxy-client")
    request = b"GET /who HTTP/1.1\r\nHost: x\r\n\r\n"
    failed: list[bool] = []

    def ask(port: int) -> None:
        try:
            get(port, mine, before=request)
        except (OSError, ssl.SSLError):
            failed.append(True)

    served(context(tmp_path, mine[0]), ask, is_busy=True)

    assert failed == [True]


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, ""),
        ({}, ""),
        ({"subject": ((("organizationName", "x"),), (("commonName", "a"),))}, "a"),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, ""),
    ],
)
def test_a_certificate_has_one_common_name_or_none_that_counts(
    certificate: dict[str, object] | None, name: str
) -> None:
    assert common_name(certificate) == name
