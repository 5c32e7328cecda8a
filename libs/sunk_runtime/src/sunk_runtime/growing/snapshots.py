# pyright: reportUnknownMemberType=false
"""Copies a stream from one NATS to another by JetStream's snapshots: its messages and its consumers.

What must stay true: the source is only read. A copy that breaks off leaves no messages at the target.

Source: nats-server 2.15, ``$JS.API.STREAM.SNAPSHOT`` and ``.RESTORE``; nats-py 2.16 has no calls for them.
"""

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from sunk_runtime.errors import BusUnavailableError, NoResponderError
from sunk_runtime.growing.decision import ConsumerSeen, StreamSeen, settings_on_three
from sunk_runtime.jetstream import Bus, Message

CHUNK_S: Final = 30.0
"""How long one chunk may take on either side; JetStream itself gives up after 5 s of silence."""
LISTENS_S: Final = 3.0
"""How long the servers may take to tell each other which of them listens."""
PAUSE_S: Final = 0.05
END_S: Final = 600.0
"""How long the target may take to read what it has got."""
_GOOD: Final = frozenset({"", "204"})


async def copy_stream(source: Bus, target: Bus, name: str) -> None:
    """Make stream *name*, which *target* has not, of what *source* has now, with three replicas.

    Raises:
        JetStreamRejectedError: *target* refuses it.
        BusUnavailableError: it broke off; *target* may have an empty stream of that name.
    """
    async with _chunks(source) as (inbox, chunks):
        begun = await source.js.snapshot(name, inbox)
        deliver_to = await target.js.restore(name, settings_on_three(begun["config"]), begun["state"])
        async with aclosing(_data(source, name, chunks)) as data:
            async for chunk in data:
                await put(target, deliver_to, chunk, CHUNK_S)
        await put(target, deliver_to, b"", END_S)


async def put(target: Bus, deliver_to: str, chunk: bytes, timeout_s: float) -> None:
    """Hand over *chunk*, again while no server listens: ours learns a moment later that another does."""
    until = anyio.current_time() + LISTENS_S
    while True:
        try:
            return await target.js.put_chunk(deliver_to, chunk, timeout_s=timeout_s)
        except NoResponderError:  # So it was not delivered.
            if anyio.current_time() > until:
                raise
        await anyio.sleep(PAUSE_S)


@asynccontextmanager
async def _chunks(source: Bus) -> AsyncGenerator[tuple[str, MemoryObjectReceiveStream[Message]]]:
    inbox = source.inbox()
    send, receive = anyio.create_memory_object_stream[Message](math.inf)
    with send, receive:
        async with source.subscribed(inbox, send.send):
            yield inbox, receive


async def _data(source: Bus, name: str, chunks: MemoryObjectReceiveStream[Message]) -> AsyncGenerator[bytes]:
    """Yield what comes until the empty one; each is acknowledged once it was used, so few are kept."""
    while True:
        try:
            with anyio.fail_after(CHUNK_S):
                chunk = await chunks.receive()
        except TimeoutError as error:
            raise BusUnavailableError(f"snapshot of {name}: no more came within {CHUNK_S:g} s") from error
        if not chunk.data:
            if (status := chunk.headers.get("Status", "")) not in _GOOD:
                raise BusUnavailableError(
                    f"snapshot of {name}: {status} {chunk.headers.get('Description', '')}"
                )
            return
        yield chunk.data
        if chunk.reply:
            await source.send_bare(chunk.respond(b""))


async def names_of(bus: Bus) -> list[str]:
    """Return the names of all streams, in order."""
    names: list[str] = []
    while more := await bus.js.streams_info(offset=len(names)):
        names.extend(info.config.name or "" for info in more)
    return sorted(names)


async def bytes_of(bus: Bus) -> int:
    """Return how many bytes all streams have on disk, about."""
    used = 0
    offset = 0
    while more := await bus.js.streams_info(offset=offset):
        offset += len(more)
        used += sum(info.state.bytes for info in more)
    return used


async def seen(bus: Bus, name: str) -> StreamSeen:
    """Return what *bus* has of stream *name* now."""
    consumers: dict[str, ConsumerSeen] = {}
    offset = 0
    while more := await bus.js.consumers_info(name, offset=offset):
        offset += len(more)
        for info in more:
            if info.config.durable_name:
                consumers[info.name] = ConsumerSeen(
                    delivered=info.delivered.stream_seq if info.delivered else 0,
                    acknowledged=info.ack_floor.stream_seq if info.ack_floor else 0,
                    unacknowledged=info.num_ack_pending or 0,
                    settings=info.config.as_dict(),
                )
    info = await bus.js.stream_info(name)
    state = info.state
    first_seq = state.first_seq if state.messages else state.last_seq + 1  # Where there is none, it varies.
    return StreamSeen(
        messages=state.messages,
        first_seq=first_seq,
        last_seq=state.last_seq,
        consumers=consumers,
        settings=settings_on_three(info.config.as_dict()),
    )


async def is_on_all_servers(bus: Bus, name: str) -> bool:
    """Return whether every replica of stream *name* has all of it."""
    cluster = (await bus.js.stream_info(name)).cluster
    others = (cluster and cluster.replicas) or []
    return bool(cluster and cluster.leader) and len(others) > 1 and all(peer.current for peer in others)
