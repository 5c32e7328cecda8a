"""Answers as servers and proxies send them: each whole or an error, and nothing of one in the next."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import httpx
import pytest

from sunk_runtime.testing import until
from sunk_slurm.lanes import Lanes

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = OK + b"Content-Length: 2\r\n\r\n{}"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Says:
    """A server that says *answer* to each request, in pieces of *size* bytes, and then ends or does not."""

    def __init__(self, answer: bytes, *, size: int, is_ended: bool) -> None:
        self.connections = 0
        self.ended = 0
        """By the client."""
        self.asked = b""
        self._answer = answer
        self._size = size
        self._is_ended = is_ended

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serve, and yield the URL."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, self._serve)
            yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/x?y=z"  # noqa: S610 - no Django
            tasks.cancel_scope.cancel()

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        async with stream:
            while True:
                try:
                    self.asked = await stream.receive()
                    for first in range(0, len(self._answer), self._size):
                        await stream.send(self._answer[first : first + self._size])
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    self.ended += 1
                    return
                if self._is_ended:
                    return


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
            id="slurmrestd 26.05, of an error",
        ),
    ],
)
async def test_an_answer_is_whole_however_it_comes(
    answer: bytes, size: int, *, is_ended: bool, is_used_again: bool
) -> None:
    server = Says(answer, size=size, is_ended=is_ended)
    async with server.serving() as url, httpx.AsyncClient(transport=Lanes(1)) as client:
        answers = [await client.get(url) for _ in range(3)]

    assert [(answer.status_code, answer.content) for answer in answers] == [(200, b"{}")] * 3
    assert server.connections == (1 if is_used_again else 3)


async def test_what_is_not_modified_has_no_body_whatever_its_length_is_said_to_be() -> None:
    server = Says(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", size=100, is_ended=False)
    async with server.serving() as url, httpx.AsyncClient(transport=Lanes(1)) as client:
        answers = [await client.get(url) for _ in range(2)]

    assert [(answer.status_code, answer.content) for answer in answers] == [(304, b"")] * 2
    assert server.connections == 1


async def test_a_request_is_sent_as_it_was_made() -> None:
    server = Says(PLAIN, size=100, is_ended=False)
    async with server.serving() as url, httpx.AsyncClient(transport=Lanes(1)) as client:
        await client.post(url, content=b"{1}", headers={"Authorization": "Bearer abc"})

    head, _, body = server.asked.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert (lines[0], body) == (b"POST /x?y=z HTTP/1.1", b"{1}")
    assert {b"Authorization: Bearer abc", b"Content-Length: 3"} <= {*lines}
    assert lines[1].startswith(b"Host: 127.0.0.1:")


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
async def test_an_answer_that_is_none_is_an_error_and_its_connection_gone(
    answer: bytes, size: int, *, is_ended: bool
) -> None:
    server = Says(answer, size=size if len(answer) < 1000 else 10_000, is_ended=is_ended)
    async with server.serving() as url, httpx.AsyncClient(transport=Lanes(1)) as client:
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(url)

    assert server.connections == 2


async def test_what_comes_after_an_answer_is_nobodys_answer() -> None:
    server = Says(PLAIN + PLAIN.replace(b"{}", b"[]"), size=10_000, is_ended=False)
    async with server.serving() as url, httpx.AsyncClient(transport=Lanes(1)) as client:
        answers = [(await client.get(url)).content for _ in range(3)]

    assert answers == [b"{}"] * 3
    assert server.connections == 3


async def test_a_connection_in_use_when_all_are_closed_is_closed_when_it_comes_back() -> None:
    server = Says(PLAIN, size=100, is_ended=False)
    async with server.serving() as url:
        lanes = Lanes(1)
        answer = await lanes.handle_async_request(httpx.Request("GET", url))
        await lanes.aclose()
        content = await answer.aread()
        await answer.aclose()
        await until(lambda: server.ended == 1)

    assert content == b"{}"


async def test_a_scheme_that_is_not_spoken_is_said_to_be_that() -> None:
    async with httpx.AsyncClient(transport=Lanes(1)) as client:
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.get("ftp://127.0.0.1/")
