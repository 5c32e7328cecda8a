from typing import Any

import anyio
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo

from sunk_events import subjects
from sunk_runtime import pull as module
from sunk_runtime.connection import connected
from sunk_runtime.context import JetStream
from sunk_runtime.errors import BusUnavailableError, PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, Message
from sunk_runtime.pull import BATCH, Pull, create_consumer, pulling
from sunk_runtime.testing import WITHIN_S, until

pytestmark = pytest.mark.anyio

STREAM = subjects.fact_stream("c1")
NO_ACK = ConsumerConfig(ack_policy=AckPolicy.NONE)


async def store(bus: Bus, count: int) -> None:
    for number in range(count):
        await bus.send(f"sunk.ev.c1.{number}", b"%d" % number)

    async def is_stored() -> bool:
        return bool((await bus.js.stream_info(STREAM)).state.messages == count)

    await until(is_stored)


async def deliveries(pull: Pull) -> list[Message]:
    """Return what comes next, over any signs of life."""
    while True:
        if messages := await pull.batch():
            return messages


async def test_who_is_slow_to_take_has_a_bounded_number_waiting_and_loses_none(bus: Bus) -> None:
    await store(bus, 1800)
    consumer, pending = await create_consumer(bus, STREAM, NO_ACK)
    assert pending == 1800

    async def sent() -> int:
        delivered = (await bus.js.consumer_info(STREAM, consumer)).delivered
        return delivered.consumer_seq if delivered else 0

    async with pulling(bus, STREAM, consumer) as pull:
        came = await deliveries(pull)
        most = len(came) + BATCH  # What was asked for and not taken yet.

        async def has_all_it_was_asked_for() -> bool:
            return await sent() >= BATCH

        await until(has_all_it_was_asked_for)
        await bus.flush()
        assert await sent() <= most
        while len(came) < 1800:
            came += await deliveries(pull)

    assert [message.data for message in came] == [b"%d" % number for number in range(1800)]
    assert [message.metadata.sequence.consumer for message in came] == list(range(1, 1801))


async def test_with_nothing_to_deliver_the_server_gives_signs_of_life(bus: Bus) -> None:
    consumer, _ = await create_consumer(bus, STREAM, NO_ACK)
    async with pulling(bus, STREAM, consumer) as pull:
        assert await pull.batch() == []


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_server_that_is_greeted_answers_before_its_first_sign_of_life_and_leaves_nothing_out(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for name, seconds in (("HEARTBEAT_S", 3600.0), ("EXPIRES_S", 7200.0), ("DEAD_S", 3600.0)):
        monkeypatch.setattr(module, name, seconds)
    await store(bus, count)
    consumer, _ = await create_consumer(bus, STREAM, NO_ACK)

    async with pulling(bus, STREAM, consumer, greets=True) as pull:
        with anyio.fail_after(WITHIN_S):
            came = await pull.batch()
            while len(came) < count:
                came += await deliveries(pull)

    assert [message.data for message in came] == [b"%d" % number for number in range(count)]


async def test_what_came_before_the_consumer_was_deleted_is_handed_over_and_then_the_pull_ends(
    bus: Bus,
) -> None:
    await store(bus, 3)
    consumer, _ = await create_consumer(bus, STREAM, NO_ACK)
    async with pulling(bus, STREAM, consumer) as pull:
        came: list[Message] = []
        while len(came) < 3:  # Not always at once.
            came += await deliveries(pull)
        await bus.js.delete_consumer(STREAM, consumer)

        async def reads_on() -> bool:
            assert await pull.batch() == []  # A sign of life, at most.
            return False

        with pytest.raises(BusUnavailableError, match="Consumer Deleted"):
            await until(reads_on)

    assert [message.data for message in came] == [b"0", b"1", b"2"]


async def test_a_stored_message_that_looks_like_the_servers_own_words_is_a_delivery(bus: Bus) -> None:
    await bus.publish("sunk.ev.c1.x", b"", headers={"Status": "409", "Description": "Consumer Deleted"})
    consumer, _ = await create_consumer(bus, STREAM, NO_ACK)
    async with pulling(bus, STREAM, consumer) as pull:
        assert [message.subject for message in await deliveries(pull)] == ["sunk.ev.c1.x"]


async def test_a_consumer_of_a_stream_that_is_not_there_is_refused(bus: Bus) -> None:
    with pytest.raises(PermanentError, match="stream not found"):
        await create_consumer(bus, "NONE", ConsumerConfig(durable_name="test"))


class Stubborn(JetStream):
    """A server that makes consumers with other settings than those it was asked for."""

    async def add_consumer(self, stream: str, *more: Any, **others: Any) -> ConsumerInfo:  # noqa: ANN401 - whatever the real one takes
        return await super().add_consumer(stream, *more, **{**others, "max_deliver": 3})


async def test_a_durable_that_keeps_other_settings_is_an_error_that_names_them(
    bus: Bus, settings: BusSettings
) -> None:
    async with connected("test", servers=[settings.url], user="", password=None) as connection:
        bus.js = Stubborn(connection, bus.clock)
        with pytest.raises(PermanentError, match=f"consumer test of {STREAM} keeps max_deliver 3: remove it"):
            await create_consumer(bus, STREAM, ConsumerConfig(durable_name="test", max_deliver=-1))
