"""The cable, between a plain client and a server that answers what it hears."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from sunk_lab.cut import Cable, cable

pytestmark = pytest.mark.anyio


async def echo(stream: SocketStream) -> None:
    async with stream:
        with suppress(anyio.BrokenResourceError):  # A reset ends it too.
            async for data in stream:
                await stream.send(data)


@asynccontextmanager
async def laid() -> AsyncGenerator[Cable]:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, echo)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
        async with cable(f"nats://127.0.0.1:{port}") as found:
            yield found
        tasks.cancel_scope.cancel()


async def connected(found: Cable) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", found.port)


async def says(stream: SocketStream, word: bytes) -> bytes:
    await stream.send(word)
    with anyio.fail_after(120):
        return await stream.receive()


async def test_a_whole_cable_carries_both_ways() -> None:
    async with laid() as found, await connected(found) as stream:
        assert await says(stream, b"hello") == b"hello"
        assert found.connections == 1


async def test_a_cut_cable_carries_nothing_and_tells_nobody_and_what_was_sent_arrives_after_the_mending() -> (
    None
):
    async with laid() as found, await connected(found) as stream:
        await says(stream, b"before")
        found.cut()
        await stream.send(b"meanwhile")
        with anyio.move_on_after(0.2) as silence:
            await stream.receive()
        assert silence.cancelled_caught

        found.mend()

        with anyio.fail_after(120):
            assert await stream.receive() == b"meanwhile"


async def test_through_a_cut_cable_a_new_connection_hears_nothing() -> None:
    async with laid() as found:
        found.cut()
        async with await connected(found) as stream:
            await stream.send(b"hello")
            with anyio.move_on_after(0.2) as silence:
                await stream.receive()
            assert silence.cancelled_caught

            found.mend()
            with anyio.fail_after(120):
                assert await stream.receive() == b"hello"


async def test_a_reset_ends_what_goes_through_and_the_next_connection_is_taken() -> None:
    async with laid() as found, await connected(found) as stream:
        await says(stream, b"before")

        await found.reset()

        with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)), anyio.fail_after(120):
            await stream.receive()
        async with await connected(found) as again:
            assert await says(again, b"after") == b"after"


async def test_a_server_that_is_gone_ends_the_connection() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
    async with cable(f"nats://127.0.0.1:{port}") as found, await connected(found) as stream:
        with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)), anyio.fail_after(120):
            await stream.receive()
