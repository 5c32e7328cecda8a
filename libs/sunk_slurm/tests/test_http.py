"""Calls over real connections, with servers and proxies that speak HTTP well and badly.

Each answer is whole or an error, nothing of one is in the next, and whatever becomes of a call, the next one
has a connection.
"""

import gzip
import random
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from threading import Thread

import anyio
import anyio.abc
import httpx
import pytest

from sunk_runtime.testing import WITHIN_S, until
from sunk_slurm import connections
from sunk_slurm.call import Call
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.reads import node_path
from sunk_slurm.server import MAX_CONNECTIONS, Server

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = OK + b"Content-Length: 2\r\n\r\n{}"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LOOK = Call(name="node", doing="look at node n1", path="node/n1")


class OneToken:
    def current(self) -> str:
        return "token"

    def renew(self) -> None:
        """It is the only one."""


class Says:
    """A server that says *answer* to each request, in pieces of *size* bytes, and then ends or does not."""

    def __init__(self, answer: bytes = PLAIN, *, size: int = 10_000, is_ended: bool = False) -> None:
        self.connections = 0
        self.open = 0
        self.asked = b""
        self.hangs = False
        self.more = b""
        """Said by itself, when it is told to."""
        self.may_say_more = anyio.Event()
        self.has_said_more = anyio.Event()
        self._answer = answer
        self._size = size
        self._is_ended = is_ended

    @asynccontextmanager
    async def serving(self, user: str = "") -> AsyncGenerator[Server]:
        """Serve, and yield who calls it."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, self._serve)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - no Django
            server = Server(f"http://{user}127.0.0.1:{port}", OneToken())
            server.version = "v0.0.44"
            yield server
            await server.close()
            tasks.cancel_scope.cancel()

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        self.open += 1
        async with stream:
            try:
                await self._talk(stream)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
            finally:
                self.open -= 1

    async def _talk(self, stream: anyio.abc.SocketStream) -> None:
        while True:
            self.asked = await stream.receive()
            if self.hangs:
                await stream.receive()
            for first in range(0, len(self._answer), self._size):
                await stream.send(self._answer[first : first + self._size])
            if self._is_ended:
                return
            if self.more:
                await self.may_say_more.wait()
                await stream.send(self.more)
                self.has_said_more.set()


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("answer", "is_ended", "is_used_again"),
    [
        pytest.param(PLAIN, False, True, id="a length"),
        pytest.param(OK + b"content-length:2 \r\n\r\n{}", False, True, id="a length, written otherwise"),
        pytest.param(CHUNKED + b"1\r\n{\r\n1;a=b\r\n}\r\n0\r\n\r\n", False, True, id="chunks"),
        pytest.param(CHUNKED + b"2\r\n{}\r\n0\r\nA: b\r\n\r\n", False, True, id="a trailer"),
        pytest.param(OK + b"\r\n{}", True, False, id="until the end"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, False, True, id="announced"),
        pytest.param(PLAIN.replace(b"1.1", b"1.0"), False, False, id="HTTP/1.0"),
        pytest.param(PLAIN.replace(b"OK", b"OK\r\nConnection: close"), False, False, id="to be closed"),
        pytest.param(
            PLAIN.replace(b"OK", b"OK\r\nConnection: Close") + b"HTTP/1.1 404 NOT FOUND",
            False,
            False,
            id="slurmrestd 26.05, of an error: the head of another answer after it",
        ),
    ],
)
async def test_an_answer_is_whole_however_it_comes(
    answer: bytes, size: int, *, is_ended: bool, is_used_again: bool
) -> None:
    slurmrestd = Says(answer, size=size, is_ended=is_ended)
    async with slurmrestd.serving() as server:
        replies = [await server.ask(LOOK) for _ in range(3)]

    assert [(reply.status, reply.content) for reply in replies] == [(200, b"{}")] * 3
    assert slurmrestd.connections == (1 if is_used_again else 3)


async def test_what_is_not_modified_has_no_body_whatever_its_length_is_said_to_be() -> None:
    slurmrestd = Says(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n")
    async with slurmrestd.serving() as server:
        replies = [await server.ask(LOOK) for _ in range(2)]

    assert [(reply.status, reply.content) for reply in replies] == [(304, b"")] * 2
    assert slurmrestd.connections == 1


@pytest.mark.parametrize("user", ["", "ada:secret@"], ids=["", "who else the address names"])
async def test_a_request_says_what_is_asked_and_who_asks(user: str) -> None:
    slurmrestd = Says()
    params = (("flags", "ALL"), ("flags", "DETAIL"))
    call = Call(name="x", doing="x", method="POST", path=node_path("a b/é"), params=params, body=b"{1}")
    async with slurmrestd.serving(user) as server:
        await server.ask(call)

    head, _, body = slurmrestd.asked.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"POST /slurm/v0.0.44/node/a%20b%2F%C3%A9?flags=ALL&flags=DETAIL HTTP/1.1"
    assert {b"Authorization: Bearer token", b"Content-Length: 3", b"Accept-Encoding: identity"} <= {*lines}
    assert sum(line.lower().startswith(b"authorization:") for line in lines) == 1
    assert body == b"{1}"


@pytest.mark.parametrize("name", [".", "..", "%2e", "?", "#", "a:b", "//", "\\"])
async def test_a_node_of_any_name_is_a_node(name: str) -> None:
    slurmrestd = Says()
    async with slurmrestd.serving() as server:
        await server.ask(Call(name="x", doing="x", path=node_path(name)))

    target = slurmrestd.asked.split(b" ")[1].decode()
    assert httpx.URL(f"http://x{target}").path == f"/slurm/v0.0.44/node/{name}"
    assert target.count("/") == 4


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(
    ("answer", "is_ended"),
    [
        pytest.param(b"", True, id="nothing"),
        pytest.param(PLAIN[:-1], True, id="cut off in the body"),
        pytest.param(PLAIN[:20], True, id="cut off in the head"),
        pytest.param(CHUNKED + b"2\r\n{", True, id="cut off in a chunk"),
        pytest.param(CHUNKED + b"2\r\n{}\r\n", True, id="no last chunk"),
        pytest.param(b"SSH-2.0-x\r\n\r\n", False, id="another protocol"),
        pytest.param(b"HTTP/1.1\r\n\r\n", False, id="no status"),
        pytest.param(b"HTTP/1.1 abc OK\r\n\r\n", False, id="a status of letters"),
        pytest.param(OK + b"Content-Length: -1\r\n\r\n", False, id="less than 0"),
        pytest.param(OK + b"Content-Length: 1_0\r\n\r\n", False, id="no number"),
        pytest.param(CHUNKED + b"x\r\n", False, id="no size of a chunk"),
        pytest.param(OK + b"Transfer-Encoding: gzip\r\n\r\n", False, id="compressed"),
        pytest.param(OK + b"A: " + b"a" * 200_000, False, id="an endless head"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_after_which_anything_may_have_been_done(
    answer: bytes, size: int, *, is_ended: bool
) -> None:
    slurmrestd = Says(answer, size=size if len(answer) < 1000 else 10_000, is_ended=is_ended)
    async with slurmrestd.serving() as server:
        for _ in range(2):
            with pytest.raises(SlurmUnavailableError) as raised:
                await server.ask(LOOK)
            assert raised.value.is_sent

    assert slurmrestd.connections == 2


async def test_more_than_any_answer_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_ANSWER_BYTES", 1_000_000)
    slurmrestd = Says(OK + b"\r\n" + b"x" * 3_000_000, is_ended=True)
    async with slurmrestd.serving() as server:
        with pytest.raises(SlurmUnavailableError, match="more than 1000000 bytes"):
            await server.ask(LOOK)


@pytest.mark.parametrize("times", [1, 3])
async def test_what_is_compressed_unasked_is_not_unpacked(times: int) -> None:
    packed = b"{}" + b" " * 10_000_000
    for _ in range(times):
        packed = gzip.compress(packed)
    head = f"Content-Encoding: {', '.join(['gzip'] * times)}\r\nContent-Length: {len(packed)}\r\n\r\n"
    slurmrestd = Says(OK + head.encode() + packed)
    async with slurmrestd.serving() as server:
        reply = await server.ask(LOOK)

    assert reply.content == packed


@pytest.mark.parametrize("where", ["http://elsewhere", "mailto:x@y", "http://xn--a/", "http://["])
async def test_an_answer_has_no_say_in_what_is_asked_next(where: str) -> None:
    head = f"Location: {where}\r\nSet-Cookie: \N{SNOWMAN}=1\r\nSet-Cookie: a=1\r\nContent-Length: 0\r\n\r\n"
    slurmrestd = Says(b"HTTP/1.1 307 Temporary Redirect\r\n" + head.encode())
    async with slurmrestd.serving() as server:
        replies = [await server.ask(LOOK) for _ in range(3)]

    assert [reply.status for reply in replies] == [307] * 3
    assert b"cookie" not in slurmrestd.asked.lower()
    assert slurmrestd.connections == 1


async def test_what_comes_after_an_answer_is_nobodys_answer() -> None:
    slurmrestd = Says()
    slurmrestd.more = PLAIN.replace(b"{}", b"[]")
    async with slurmrestd.serving() as server:
        before = await server.ask(LOOK)
        slurmrestd.may_say_more.set()
        await slurmrestd.has_said_more.wait()
        after = await server.ask(LOOK)

    assert (before.content, after.content) == (b"{}", b"{}")
    assert slurmrestd.connections == 2


async def test_a_connection_that_the_server_has_ended_is_not_used_again() -> None:
    slurmrestd = Says(is_ended=True)
    async with slurmrestd.serving() as server:
        for _ in range(3):
            await server.ask(LOOK)
            await until(lambda: not slurmrestd.open)

    assert slurmrestd.connections == 3


async def test_a_server_that_is_not_there_is_told_of_by_why_and_nothing_was_sent() -> None:
    server = Server("http://127.0.0.1:1", OneToken())
    server.version = "v0.0.44"
    for _ in range(MAX_CONNECTIONS * 2):
        with pytest.raises(
            SlurmUnavailableError, match=r"look at node n1: ConnectError: .*Errno 111"
        ) as raised:
            await server.ask(LOOK)
        assert not raised.value.is_sent
    await server.close()


async def test_calls_that_are_given_up_whenever_leave_every_connection_to_others() -> None:
    slurmrestd = Says()
    chance = random.Random(1)  # noqa: S311 - no secret
    async with slurmrestd.serving() as server, anyio.create_task_group() as tasks:

        async def give_up() -> None:
            with anyio.move_on_after(chance.random() / 50):
                await server.ask(LOOK)

        for _ in range(20):
            for _ in range(MAX_CONNECTIONS * 2):
                tasks.start_soon(give_up)
            await anyio.sleep(chance.random() / 50)
            slurmrestd.hangs = not slurmrestd.hangs
        slurmrestd.hangs = False

        answered = 0

        async def ask() -> None:
            nonlocal answered
            await server.ask(LOOK)
            answered += 1

        for _ in range(MAX_CONNECTIONS * 3):
            tasks.start_soon(ask)
        with anyio.fail_after(WITHIN_S):
            await until(lambda: answered == MAX_CONNECTIONS * 3)
        assert slurmrestd.open <= MAX_CONNECTIONS + 1


@pytest.mark.parametrize("anyio_backend", [pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")])
async def test_a_connection_that_is_reset_as_it_is_made_is_an_outage_and_no_bug() -> None:
    """On uvloop anyio then asks a socket that is none who its peer is (1 of 50 connections)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=reset_all, args=(listener,), daemon=True).start()
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}", OneToken())
        server.version = "v0.0.44"

        async def ask() -> None:
            for _ in range(300):
                with pytest.raises(SlurmUnavailableError):
                    await server.ask(LOOK)

        async with anyio.create_task_group() as tasks:
            for _ in range(MAX_CONNECTIONS):
                tasks.start_soon(ask)
        await server.close()


def reset_all(listener: socket.socket) -> None:
    """End each connection with RST, until *listener* is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
