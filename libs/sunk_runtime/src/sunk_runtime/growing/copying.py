# pyright: reportUnknownMemberType=false
"""Copies every stream of one NATS server to three, until both have the same.

What must stay true: the one server's streams are only read. What the three have is deleted only where the
decision says so. The stream `GROWN_STREAM` exists only while both have the same: the three may have a copy
of an earlier try, with that stream, so each try begins without it.
"""

import logging
from typing import Final

import anyio

from sunk_events import subjects
from sunk_runtime.errors import JetStreamRejectedError, PermanentError, TransientError
from sunk_runtime.growing.decision import REPLICAS, Step, StreamSeen, next_step, no_space, refusal, unknown
from sunk_runtime.growing.snapshots import bytes_of, copy_stream, is_on_all_servers, names_of, seen
from sunk_runtime.jetstream import Bus

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
EQUAL_S: Final = 15.0
"""Within that both sides drop the messages that end by their time; JetStream looks every few seconds."""
NOT_FOUND: Final = 10059
NAME_HELD: Final = 10130
"""By a restore that broke off: JetStream shows no stream of that name, and yet deletes it."""
LATER: Final = frozenset({10005, 10008, 10074})
"""The three servers have not found each other yet."""


async def grow(source: Bus, target: Bus, *, volume_mib: int = 0) -> int:
    """Make *target* have every stream as *source* has it, mark that, and return how many there are.

    With *volume_mib*, the size of a volume that both share, it copies only what has space there twice.

    Raises:
        PermanentError: *target* has what *source* has not, or refuses; names the stream.
        TransientError: it broke off; the same call again goes on.
    """
    await _delete(target, subjects.GROWN_STREAM)
    names = [name for name in await names_of(source) if name != subjects.GROWN_STREAM]
    if why := unknown(names, set(await names_of(target)) - {subjects.GROWN_STREAM}):
        raise PermanentError(why)
    if volume_mib and (why := no_space(await bytes_of(source), volume_mib)):
        raise PermanentError(why)
    for name in names:
        await _grow(source, target, name)
    for name in names:
        await _await_all_servers(target, name)
    await target.js.add_stream(
        name=subjects.GROWN_STREAM, subjects=[subjects.GROWN], max_msgs=1, num_replicas=REPLICAS
    )
    await _await_all_servers(target, subjects.GROWN_STREAM)
    return len(names)


async def _grow(source: Bus, target: Bus, name: str) -> None:
    one, three = await _compared(source, target, name)
    match next_step(one, three):
        case Step.NOTHING:
            log.info("stream already copied", extra=_fields(name, one))
            return
        case Step.REFUSE:
            raise PermanentError(refusal(name, one, three or StreamSeen()))
        case Step.REPLACE:
            log.info("stream partly copied", extra=_fields(name, three or StreamSeen()))
            await _delete(target, name)
        case Step.COPY:
            pass
    await _copy(source, target, name)
    one, three = await _compared(source, target, name)
    if next_step(one, three) is not Step.NOTHING:
        raise TransientError(f"stream {name}: its copy is not yet equal to the stream of the one server")
    log.info("stream copied", extra=_fields(name, one))


async def _copy(source: Bus, target: Bus, name: str) -> None:
    try:
        await copy_stream(source, target, name)
    except JetStreamRejectedError as error:
        if error.err_code != NAME_HELD:
            raise
        await _delete(target, name)
        raise TransientError(f"stream {name}: {error}") from error


async def _compared(source: Bus, target: Bus, name: str) -> tuple[StreamSeen, StreamSeen | None]:
    """Return what both have: at once if that is equal or nothing, else when it stays different."""
    with anyio.move_on_after(EQUAL_S):
        while True:
            one, three = await seen(source, name), await _seen_on(target, name)
            if three is None or three == one or not three.last_seq:
                return one, three
            await anyio.sleep(AGAIN_S)
    return await seen(source, name), await _seen_on(target, name)


async def _seen_on(target: Bus, name: str) -> StreamSeen | None:
    try:
        return await seen(target, name)
    except JetStreamRejectedError as error:
        if error.err_code != NOT_FOUND:
            raise
        return None


async def _delete(target: Bus, name: str) -> None:
    """Delete stream *name*; success too if there is none."""
    try:
        await target.js.delete_stream(name)
    except JetStreamRejectedError as error:
        if error.err_code != NOT_FOUND:
            raise


async def _await_all_servers(target: Bus, name: str) -> None:
    while True:
        if await is_on_all_servers(target, name):
            return
        await anyio.sleep(AGAIN_S)


def _fields(name: str, what: StreamSeen) -> dict[str, object]:
    return {
        "stream": name,
        "messages": what.messages,
        "last_sequence": what.last_seq,
        "consumers": len(what.consumers),
    }
