import socket
import ssl
import subprocess
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
import uvicorn
from anyio.abc import SocketStream
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sunk_lab.ports import free_port
from sunk_runtime.errors import PermanentError
from sunk_runtime.http import Health, serve_http
from sunk_runtime.http_guard import HEAD_MAX, HEAD_TIMEOUT_S, line_of
from sunk_runtime.testing import WITHIN_S

pytestmark = pytest.mark.anyio


async def get(port: int, path: str, *, within_s: float = WITHIN_S) -> tuple[int, bytes]:
    """Return status and body of a GET, trying until somebody listens."""
    with anyio.fail_after(within_s):
        while True:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
                break
            except OSError:
                await anyio.sleep(0.01)
        async with stream:
            await stream.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join([part async for part in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@asynccontextmanager
async def serving(
    health: Health,
    *more: Route,
    tls: ssl.SSLContext | None = None,
    most: int = 4096,
    most_per_address: int = 1024,
) -> AsyncGenerator[int]:
    port = free_port()
    serve = partial(
        serve_http,
        tls=tls,
        max_connections=most,
        max_connections_per_address=most_per_address,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, "127.0.0.1", port, health, more)
        yield port
        tasks.cancel_scope.cancel()


async def test_a_process_is_alive_even_while_it_is_not_ready() -> None:
    health = Health()
    health.require("nats", lambda: False)
    async with serving(health) as port:
        assert await get(port, "/healthz") == (200, b"ok\n")


async def test_readyz_says_what_is_missing_until_nothing_is() -> None:
    health = Health()
    missing = {"view lock", "nats"}
    for name in ("view lock", "nats"):
        health.require(name, lambda name=name: name not in missing)
    health.require("always", lambda: True)
    async with serving(health) as port:
        status, body = await get(port, "/readyz")
        assert (status, msgspec.json.decode(body)) == (
            503,
            {"ready": False, "missing": ["nats", "view lock"]},
        )

        missing.clear()
        status, body = await get(port, "/readyz")
        assert (status, msgspec.json.decode(body)) == (200, {"ready": True, "missing": []})


async def test_nothing_is_ready_before_all_ports_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    health, late, may_listen = Health(), free_port(), anyio.Event()
    startup = uvicorn.Server.startup

    async def delayed(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        if server.config.port == late:
            await may_listen.wait()
        await startup(server, sockets)

    monkeypatch.setattr(uvicorn.Server, "startup", delayed)
    async with serving(health) as port, anyio.create_task_group() as tasks:
        tasks.start_soon(serve_http, "127.0.0.1", late, health)
        await anyio.lowlevel.checkpoint()
        status, body = await get(port, "/readyz")
        assert (status, msgspec.json.decode(body)["missing"]) == (503, [f"port {late}"])

        may_listen.set()
        await get(late, "/healthz")
        status, _ = await get(port, "/readyz")
        assert status == 200
        tasks.cancel_scope.cancel()


async def test_metrics_are_served_in_prometheus_text() -> None:
    async with serving(Health()) as port:
        status, body = await get(port, "/metrics")

    assert status == 200
    assert b"# HELP sunk_facts_published_total" in body


async def test_a_services_own_route_goes_first() -> None:
    async def own(_: Request) -> Response:
        return PlainTextResponse("own")

    async with serving(Health(), Route("/metrics", own)) as port:
        assert await get(port, "/metrics") == (200, b"own")


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_call_whose_caller_hangs_up_is_ended_also_where_it_did_so_before(*, is_late: bool) -> None:
    begun, gone, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def held(request: Request) -> Response:
        begun.set()
        if is_late:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            gone.set()
        with anyio.CancelScope() as scope, line_of(request).ending(scope):
            await anyio.sleep_forever()
        if scope.cancelled_caught:
            ended.set()
        return PlainTextResponse("nobody reads this")

    async with serving(Health(), Route("/held", held)) as port:
        await get(port, "/healthz")
        with anyio.fail_after(WITHIN_S):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
                await begun.wait()
            await ended.wait()

    assert gone.is_set() == is_late


async def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with (
            anyio.fail_after(WITHIN_S),
            pytest.raises(PermanentError, match=f"cannot listen on 127.0.0.1:{port}"),
        ):
            await serve_http("127.0.0.1", port, Health())


async def test_a_server_that_was_stopped_leaves_its_port_free() -> None:
    async with serving(Health()) as port:
        await get(port, "/healthz")

    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


@pytest.mark.parametrize("turns", range(8), ids="{} turns of the loop before".format)
async def test_a_connection_that_comes_as_the_server_stops_is_ended(turns: int) -> None:
    async with serving(Health()) as port:
        await get(port, "/healthz")
        client = socket.create_connection(("127.0.0.1", port))
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()

    with client, suppress(ConnectionError):
        client.settimeout(20)
        assert await anyio.to_thread.run_sync(client.recv, 1) == b""


async def ended(stream: SocketStream) -> bytes:
    """Return what comes until the other side ends the connection."""
    with anyio.fail_after(HEAD_TIMEOUT_S + WITHIN_S):
        try:
            return b"".join([part async for part in stream])
        except anyio.BrokenResourceError:  # It ended before it had read all that we sent.
            return b""


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 3 * HEAD_MAX, id="one header without an end"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * HEAD_MAX, id="headers without an end"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\n" + b"X: yyyyyy\r\n" * (HEAD_MAX // 6) + b"\r\n", id="too many"
        ),
    ],
)
async def test_a_head_that_is_too_large_ends_its_connection(head: bytes) -> None:
    async with serving(Health()) as port:
        await get(port, "/healthz")
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            with suppress(anyio.BrokenResourceError):
                await stream.send(head)
            answer = await ended(stream)

    assert answer[:12] in {b"", b"HTTP/1.1 400"}


async def test_a_head_that_does_not_come_ends_its_connection_and_a_slow_answer_does_not() -> None:
    async def slow(_: Request) -> Response:
        await anyio.sleep(HEAD_TIMEOUT_S + 1)
        return PlainTextResponse("late\n")

    told: list[tuple[int, bytes]] = []
    async with serving(Health(), Route("/slow", slow)) as port, anyio.create_task_group() as tasks:

        async def wait() -> None:
            told.append(await get(port, "/slow", within_s=HEAD_TIMEOUT_S + WITHIN_S))

        await get(port, "/healthz")
        tasks.start_soon(wait)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"GET /healthz HTTP/1.1\r\nX:")
            assert await ended(stream) == b""
    assert told == [(200, b"late\n")]


async def test_one_connection_serves_many_requests_whatever_their_heads_add_up_to() -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (HEAD_MAX // 4) + b"\r\n\r\n"
    async with serving(Health()) as port:
        await get(port, "/healthz")
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            for _ in range(8):
                await stream.send(request)
                with anyio.fail_after(WITHIN_S):
                    answer = b""
                    while not answer.endswith(b"ok\n"):
                        answer += await stream.receive()
                assert answer.startswith(b"HTTP/1.1 200")


async def test_a_call_that_outlasts_the_stop_ends_with_its_connection() -> None:
    is_held, may_end = anyio.Event(), anyio.Event()

    async def hold(_: Request) -> Response:
        is_held.set()
        while not may_end.is_set():
            with anyio.CancelScope(shield=True), suppress(anyio.get_cancelled_exc_class()):
                await may_end.wait()
        return PlainTextResponse("late\n")

    async with serving(Health(), Route("/hold", hold)) as port:
        await get(port, "/healthz")
        stream = await anyio.connect_tcp("127.0.0.1", port)
        await stream.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        await is_held.wait()

    try:
        async with stream:
            assert await ended(stream) == b""
    finally:
        may_end.set()


async def connected(stack: AsyncExitStack, port: int, address: str, count: int) -> list[SocketStream]:
    """Return connections of *address* that send nothing."""
    streams = [await anyio.connect_tcp("127.0.0.1", port, local_host=address) for _ in range(count)]
    for stream in streams:
        stack.push_async_callback(stream.aclose)
    return streams


async def test_of_connections_over_a_bound_those_that_ask_nothing_end_and_calls_go_on() -> None:
    is_held, may_end = anyio.Event(), anyio.Event()

    async def hold(_: Request) -> Response:
        is_held.set()
        await may_end.wait()
        return PlainTextResponse("held\n")

    held = Route("/hold", hold)
    async with serving(Health(), held, most_per_address=4, most=6) as port, AsyncExitStack() as stack:
        await get(port, "/healthz")
        (caller,) = await connected(stack, port, "127.0.0.2", 1)
        await caller.send(b"GET /hold HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await is_held.wait()
        same = await connected(stack, port, "127.0.0.2", 30)
        others = await connected(stack, port, "127.0.0.3", 30)
        for stream in same[:-3] + others[:-4]:  # As many as may be are left, and of one address no more.
            with anyio.fail_after(HEAD_TIMEOUT_S / 2):  # Before the time that each has.
                assert await ended(stream) == b""
        assert await get(port, "/healthz") == (200, b"ok\n")
        may_end.set()
        assert (await ended(caller)).endswith(b"held\n")


async def test_a_body_that_nobody_waits_for_does_not_go_on_for_ever() -> None:
    async def refuse(_: Request) -> Response:
        return PlainTextResponse("no\n", status_code=401)

    async with serving(Health(), Route("/refused", refuse, methods=["POST"])) as port:
        await get(port, "/healthz")
        async with await anyio.connect_tcp("127.0.0.1", port) as stream, anyio.create_task_group() as tasks:
            await stream.send(b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")

            async def go_on() -> None:
                with suppress(anyio.BrokenResourceError):
                    for _ in range(999):
                        await stream.send(b"x")
                        await anyio.sleep(0.3)

            tasks.start_soon(go_on)
            assert (await received(stream)).startswith(b"HTTP/1.1 401")
            tasks.cancel_scope.cancel()


async def received(stream: SocketStream) -> bytes:
    """Return what comes until the other side ends the connection, in whatever way."""
    data = b""
    with anyio.fail_after(HEAD_TIMEOUT_S + WITHIN_S), suppress(anyio.BrokenResourceError):
        async for part in stream:
            data += part
    return data


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("tls")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "crt"), "-subj", "/CN=x"]
    subprocess.run([*made, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")
    return context


async def get_over_tls(port: int) -> bytes:
    """Return what /healthz says, as soon as somebody listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                stream = await anyio.connect_tcp(
                    "127.0.0.1", port, ssl_context=context, tls_standard_compatible=False
                )
                break
            except OSError:
                await anyio.sleep(0.01)
        async with stream:
            await stream.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return b"".join([part async for part in stream]).partition(b"\r\n\r\n")[2]


async def test_who_never_shakes_hands_is_one_of_its_addresses_connections_and_ends_in_time(
    tls: ssl.SSLContext,
) -> None:
    async with serving(Health(), tls=tls, most_per_address=3) as port, AsyncExitStack() as stack:
        await get_over_tls(port)
        flood = await connected(stack, port, "127.0.0.1", 20)
        assert await get_over_tls(port) == b"ok\n"  # In the place of one of them.
        for stream in flood:
            assert await ended(stream) == b""


async def test_a_connection_with_tls_costs_little_memory(tls: ssl.SSLContext) -> None:
    count = 40
    async with serving(Health(), tls=tls) as port, AsyncExitStack() as stack:
        await get_over_tls(port)
        tracemalloc.start()
        await connected(stack, port, "127.0.0.1", count)
        await get_over_tls(port)  # All before it are accepted.
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < count * 64 * 1024
