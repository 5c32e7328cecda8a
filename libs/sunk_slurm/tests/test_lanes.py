"""Connections are used again, come back whatever becomes of a request, and are never more than said."""

from collections.abc import AsyncIterator

import anyio
import anyio.abc
import httpx
import pytest

from sunk_runtime.testing import until
from sunk_slurm.lanes import Lanes

pytestmark = pytest.mark.anyio

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Speaks HTTP as little as is needed."""

    def __init__(self) -> None:
        self.connections = 0
        self.closed = 0
        self.port = 0

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        """Answer what is asked, never ``/hangs``, and only once where ``/last`` is."""
        self.connections += 1
        async with stream:
            while True:
                try:
                    asked = await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                if b"/hangs" in asked:
                    await anyio.sleep_forever()
                await stream.send(ANSWER)
                if b"/last" in asked:
                    break
        self.closed += 1

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        server.port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - no Django
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server.serve)
            yield server
            tasks.cancel_scope.cancel()


async def test_one_connection_serves_requests_that_follow_each_other(server: Server) -> None:
    async with httpx.AsyncClient(transport=Lanes(3)) as client:
        answers = [(await client.get(server.url("/"))).content for _ in range(5)]

    assert answers == [b"{}"] * 5
    assert server.connections == 1


async def test_a_connection_that_the_server_has_closed_is_not_used_again(server: Server) -> None:
    async with httpx.AsyncClient(transport=Lanes(1)) as client:
        await client.get(server.url("/last"))
        await until(lambda: server.closed == 1)
        answer = await client.get(server.url("/"))

    assert answer.content == b"{}"
    assert server.connections == 2


async def test_a_request_that_was_given_up_gives_its_connection_back(server: Server) -> None:
    async with httpx.AsyncClient(transport=Lanes(1), timeout=60) as client:
        with anyio.move_on_after(0.05) as scope:
            await client.get(server.url("/hangs"))
        answer = await client.get(server.url("/"))

    assert scope.cancelled_caught
    assert answer.content == b"{}"


async def test_a_server_that_is_away_leaves_every_connection_free(server: Server) -> None:
    async with httpx.AsyncClient(transport=Lanes(1)) as client:
        for _ in range(2):
            with pytest.raises(httpx.ConnectError):
                await client.get("http://127.0.0.1:1/")
        answer = await client.get(server.url("/"))

    assert answer.content == b"{}"


async def test_what_is_one_too_many_is_refused_before_it_is_sent(server: Server) -> None:
    async with httpx.AsyncClient(transport=Lanes(1)) as client:
        async with client.stream("GET", server.url("/")) as held:
            with pytest.raises(httpx.PoolTimeout):
                await client.get(server.url("/"))
            await held.aread()
        answer = await client.get(server.url("/"))

    assert answer.content == b"{}"
    assert server.connections == 1
