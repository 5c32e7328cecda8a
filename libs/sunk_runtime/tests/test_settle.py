import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from nats.js.api import ConsumerConfig, DeliverPolicy
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.base import Event, event_id
from sunk_events.codec import decode_event, encode
from sunk_events.dead import DeadLetter
from sunk_events.nodes import NodeDown, NodeDrained, NodeSnapshot
from sunk_lab.nats import NatsServer
from sunk_runtime import pull, settle, verdicts
from sunk_runtime.client import Client
from sunk_runtime.dead import publish_dead_letter
from sunk_runtime.errors import ConflictError, FullError, PermanentError, SunkError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.pull import create_consumer
from sunk_runtime.settle import FactConsumer
from sunk_runtime.testing import until
from sunk_runtime.writer import publish

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def fact(kind: type[NodeDrained | NodeDown], node: str, number: int = 0) -> Event:
    return kind(
        id=event_id(kind.__name__, node, number),
        source="/c1/test",
        subject=node,
        time=NOW,
        data=NodeSnapshot(node=node, state="IDLE"),
    )


@pytest.fixture
def quick_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "BUG_S", 0.1)
    monkeypatch.setattr(settle, "BUG_S", 0.1)


class Seen:
    """Handles facts and remembers which; *errors* are raised first, one a time."""

    def __init__(self, *errors: Exception) -> None:
        self.ids: list[str] = []
        self._errors = list(errors)

    async def __call__(self, event: Event) -> None:
        self.ids.append(event.id)
        if self._errors:
            raise self._errors.pop(0)


async def outstanding(bus: Bus) -> tuple[int, int]:
    """Return how many deliveries wait for their acknowledgement, and how many facts to be delivered."""
    info = await bus.js.consumer_info(subjects.fact_stream("c1"), "test")
    return info.num_ack_pending or 0, info.num_pending or 0


async def is_settled(bus: Bus) -> bool:
    return await outstanding(bus) == (0, 0)


async def dead_letter(bus: Bus) -> DeadLetter | None:
    found = await bus.last(subjects.DEAD_LETTER_STREAM, subjects.DEAD_LETTERS)
    letter = decode_event(found[1].data) if found else None
    assert letter is None or isinstance(letter, DeadLetter)
    return letter


async def test_a_consumer_that_nothing_waits_for_is_well_before_the_servers_first_sign_of_life(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("HEARTBEAT_S", 3600.0), ("EXPIRES_S", 7200.0), ("DEAD_S", 3600.0)):
        monkeypatch.setattr(pull, name, seconds)
    consumer = FactConsumer(bus, "c1", "test", Seen())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await until(lambda: consumer.is_consuming)
        tasks.cancel_scope.cancel()


async def test_what_was_handled_is_acknowledged_and_does_not_come_again(bus: Bus) -> None:
    seen = Seen()
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 1)
        await publish(bus, "c1", fact(NodeDown, "n1"))
        await until(lambda: len(seen.ids) == 2)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    later = Seen()
    await publish(bus, "c1", fact(NodeDrained, "n2"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", later).run)
        await until(lambda: len(later.ids) == 1)
        tasks.cancel_scope.cancel()
    assert (seen.ids, later.ids) == (["NodeDrained:n1:0", "NodeDown:n1:0"], ["NodeDrained:n2:0"])


@pytest.mark.parametrize(
    "error",
    [TransientError("down", retry_after_s=0.05), ConflictError("stale")],
    ids=["transient", "conflict"],
)
async def test_what_was_deferred_comes_again(bus: Bus, error: Exception) -> None:
    seen = Seen(error)
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 2)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert await dead_letter(bus) is None


@pytest.mark.usefixtures("quick_again")
async def test_a_bug_in_the_handler_is_tried_again_and_stops_nobody_else(bus: Bus) -> None:
    seen = Seen(KeyError("a bug"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await publish(bus, "c1", fact(NodeDrained, "n1"))
        await publish(bus, "c1", fact(NodeDrained, "n2"))
        await until(lambda: sorted(seen.ids) == ["NodeDrained:n1:0", "NodeDrained:n1:0", "NodeDrained:n2:0"])
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()


async def test_what_no_retry_can_help_is_a_dead_letter_with_its_reason_and_does_not_come_again(
    bus: Bus,
) -> None:
    seen = Seen(PermanentError("no such node"))
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 1)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    letter = await dead_letter(bus)
    assert letter is not None
    assert (letter.data.reason, letter.source) == ("no such node", "/c1/test")
    assert decode_event(letter.data.payload) == fact(NodeDrained, "n1")


def about(node: str) -> bytes:
    return encode(fact(NodeDrained, node))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "not a JSON object: ", id="empty"),
        pytest.param(b"garbage", "not a JSON object: ", id="no JSON"),
        pytest.param(
            b'{"type":"sunk.syncer.v9.node_drained"}',
            "sunk.syncer.v9.node_drained: version 9 is unknown",
            id="major",
        ),
        pytest.param(about("n9"), "sunk.syncer.v1.node_drained: came on", id="of another node"),
        pytest.param(encode(fact(NodeDown, "n1")), "sunk.syncer.v1.node_down: came on", id="of another type"),
    ],
)
async def test_a_fact_that_cannot_be_read_is_a_dead_letter_and_the_next_is_handled(
    bus: Bus, data: bytes, reason: str
) -> None:
    seen = Seen()
    await bus.publish(subjects.fact("c1", fact(NodeDrained, "n1")), data)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await publish(bus, "c1", fact(NodeDrained, "n2"))
        await until(lambda: seen.ids == ["NodeDrained:n2:0"])
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    letter = await dead_letter(bus)
    assert letter is not None
    assert letter.data.payload == data
    assert letter.data.reason.startswith(reason)
    info = await bus.js.stream_info(subjects.DEAD_LETTER_STREAM)
    assert info.state.messages == 1


class Delivery(Bus):
    """The connection, with every write to the dead letters failing while *is_full*."""

    def __init__(self, real: Bus) -> None:
        self.__dict__.update(real.__dict__)
        self.is_full = True

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401 - whatever the real one takes
        if self.is_full and subject.startswith(subjects.DEAD_LETTERS.removesuffix(">")):
            self.is_full = False
            raise TransientError("no space")
        return await super().publish(subject, data, **more)


@pytest.mark.usefixtures("quick_again")
async def test_a_stream_of_dead_letters_that_refuses_ends_no_consumer_and_has_the_letter_when_it_takes_it(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    stream, seen = subjects.DEAD_LETTER_STREAM, Seen(*[PermanentError("no")] * 1000)
    config = (await bus.js.stream_info(stream)).config
    await bus.js.update_stream(config, max_msg_size=10)
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: "dead letter not stored" in caplog.messages)
        assert await outstanding(bus) == (1, 0)

        await bus.js.update_stream(config)
        await publish(bus, "c1", fact(NodeDrained, "n2"))
        await until(lambda: "NodeDrained:n2:0" in seen.ids)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert (await bus.js.stream_info(stream)).state.messages == 2


@pytest.mark.parametrize("error", [PermanentError("denied"), ConflictError("stale"), FullError("no space")])
async def test_a_dead_letter_that_cannot_be_stored_is_only_told(bus: Bus, error: SunkError) -> None:
    message = Message(Client(), "sunk.ev.c1.x", data=b"")

    assert not await publish_dead_letter(Refusing(bus, error), "c1", message, "why", msg_id="1")
    assert await publish_dead_letter(bus, "c1", message, "why", msg_id="1")


class Refusing(Bus):
    """The connection, with every write failing."""

    def __init__(self, real: Bus, error: SunkError) -> None:
        self.__dict__.update(real.__dict__)
        self._error = error

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401, ARG002 - whatever the real one takes
        raise self._error


async def test_a_fact_from_the_future_is_handled_and_whose_clock_is_off_is_said_once(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    ahead = datetime.now(UTC) + timedelta(hours=3)
    with caplog.at_level(logging.INFO, "sunk_runtime.clock"):
        for number, time in enumerate((ahead, ahead, NOW)):
            event = msgspec.structs.replace(fact(NodeDrained, "n1", number), time=time)
            await publish(bus, "c1", event)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
            await until(lambda: len(seen.ids) == 3)
            tasks.cancel_scope.cancel()

    told = [line for line in caplog.records if line.name == "sunk_runtime.clock"]
    assert [line.message for line in told] == ["clock is off", "clock is right again"]
    assert (vars(told[0])["whose"], vars(told[0])["skew_s"] // 3600) in {("/c1/test", 3), ("/c1/test", 2)}


@pytest.mark.usefixtures("quick_again")
async def test_nothing_is_ended_before_its_dead_letter_is_stored(bus: Bus) -> None:
    seen = Seen(PermanentError("no"), PermanentError("no"))
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(Delivery(bus), "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 2)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert await dead_letter(bus) is not None


async def test_what_is_deferred_to_the_last_delivery_is_a_dead_letter(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "MAX_DELIVER", 6)
    seen = Seen(*(TransientError("down", retry_after_s=0.01) for _ in range(20)))
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 6)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    letter = await dead_letter(bus)
    assert letter is not None
    assert letter.data.reason == "delivered 6 times: down"


async def test_the_facts_of_one_node_are_handled_in_order_and_never_two_at_once(bus: Bus) -> None:
    busy: dict[str, int] = {}
    done: dict[str, list[str]] = {}
    most_at_once = 0

    async def handle(event: Event) -> None:
        nonlocal most_at_once
        busy[event.subject] = busy.get(event.subject, 0) + 1
        assert busy[event.subject] == 1
        most_at_once = max(most_at_once, sum(busy.values()))
        await anyio.sleep(0.01)
        done.setdefault(event.subject, []).append(event.id)
        busy[event.subject] -= 1

    for number in range(5):
        for node in ("n1", "n2", "n3"):
            await publish(bus, "c1", fact(NodeDrained, node, number))
            await publish(bus, "c1", fact(NodeDown, node, number))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", handle).run)
        await until(lambda: sum(map(len, done.values())) == 30)
        tasks.cancel_scope.cancel()

    for node in ("n1", "n2", "n3"):
        wanted = [f"{kind}:{node}:{number}" for number in range(5) for kind in ("NodeDrained", "NodeDown")]
        assert done[node] == wanted
    assert most_at_once == 3  # Other nodes did not wait.


async def test_a_consumer_goes_on_after_the_server_was_killed_and_nothing_is_skipped(
    bus: Bus, server: NatsServer
) -> None:
    seen = Seen()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await publish(bus, "c1", fact(NodeDrained, "n1"))
        await until(lambda: len(seen.ids) == 1)
        server.kill()
        server.start()
        await until(lambda: bus.reconnects == 1)
        await publish(bus, "c1", fact(NodeDrained, "n2"))

        await until(lambda: "NodeDrained:n2:0" in seen.ids)
        tasks.cancel_scope.cancel()


async def test_a_stream_that_was_lost_is_made_again_and_consumed(bus: Bus) -> None:
    seen = Seen()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await publish(bus, "c1", fact(NodeDrained, "n1"))
        await until(lambda: len(seen.ids) == 1)
        await bus.js.delete_stream(subjects.fact_stream("c1"))

        async def publishes() -> bool:
            try:
                await publish(bus, "c1", fact(NodeDrained, "n2"))
            except TransientError:
                return False
            return "NodeDrained:n2:0" in seen.ids

        await until(publishes)
        tasks.cancel_scope.cancel()


async def test_a_message_of_two_megabytes_is_a_dead_letter_and_the_next_is_handled(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", extra="max_payload: 4194304") as server:
        settings, seen = BusSettings(url=server.url), Seen()
        async with connect(settings, "test") as bus:
            await bus.provision("c1", settings)
            await bus.send(subjects.fact("c1", fact(NodeDrained, "n1")), b"x" * 2_000_000)
            await publish(bus, "c1", fact(NodeDrained, "n2"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
                await until(lambda: seen.ids == ["NodeDrained:n2:0"])
                await until(lambda: is_settled(bus))
                tasks.cancel_scope.cancel()
            letter = await dead_letter(bus)
    assert letter is not None
    assert letter.data.reason.startswith("2000000 bytes: at most")
    assert (len(letter.data.payload), letter.data.is_cut) == (65536, True)


class Gate:
    """Handles facts once it is open; *closed* are the nodes that wait for that, all where none is named."""

    def __init__(self, *closed: str) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.opened = anyio.Event()
        self._closed = closed

    async def __call__(self, event: Event) -> None:
        self.begun.append(event.id)
        if not self._closed or event.subject in self._closed:
            await self.opened.wait()
        self.done.append(event.id)


def redelivered() -> float:
    return REGISTRY.get_sample_value("sunk_events_redelivered_total", {"consumer": "test"}) or 0.0


async def test_a_slow_consumer_holds_a_bounded_number_loses_none_and_keeps_the_order(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "MAX_ACK_PENDING", 600)
    events = [fact(NodeDrained, f"n{number % 7}", number) for number in range(2000)]
    for event in events:
        await bus.send(subjects.fact("c1", event), encode(event))
    gate = Gate()
    consumer = FactConsumer(bus, "c1", "test", gate)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await until(lambda: consumer.held == 600)
        await until(lambda: len(gate.begun) == 7)  # One of each node, and no second while that waits.

        async def rest_waits() -> bool:
            return await outstanding(bus) == (600, 1400)

        await until(rest_waits)
        assert consumer.held == 600
        gate.opened.set()
        await until(lambda: len(gate.done) == 2000)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    for node in range(7):
        wanted = [event.id for event in events if event.subject == f"n{node}"]
        assert [one for one in gate.done if one.split(":")[1] == f"n{node}"] == wanted


async def test_lag_is_what_waits_behind_the_last_delivery(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "MAX_ACK_PENDING", 2)
    gate = Gate()
    for number in range(5):
        await publish(bus, "c1", fact(NodeDrained, "n1", number))

    def lag() -> float:
        return REGISTRY.get_sample_value("sunk_event_lag", {"consumer": "test"}) or 0.0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", gate).run)
        await until(lambda: len(gate.begun) == 1)
        await until(lambda: lag() == 3)
        gate.opened.set()
        await until(lambda: len(gate.done) == 5)
        assert lag() == 0
        tasks.cancel_scope.cancel()


async def test_what_is_handled_for_longer_than_the_server_waits_is_not_delivered_twice(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "ACK_WAIT_S", 5)
    monkeypatch.setattr(settle, "KEEP_S", 0.5)
    before = redelivered()
    gate = Gate("n1")
    for number in range(2):  # The second waits here, not in the handler.
        await publish(bus, "c1", fact(NodeDrained, "n1", number))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", gate).run)
        await until(lambda: len(gate.begun) == 1)
        await anyio.sleep(7)  # Longer than the server waits.
        gate.opened.set()
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert gate.begun == gate.done == ["NodeDrained:n1:0", "NodeDrained:n1:1"]
    assert redelivered() == before


async def test_what_is_delivered_again_while_it_is_handled_is_handled_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "ACK_WAIT_S", 1)  # And nobody says that it is under way.
    before = redelivered()
    gate = Gate("n1")
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", gate).run)
        await until(lambda: redelivered() > before)
        gate.opened.set()
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert gate.begun == ["NodeDrained:n1:0"]


async def test_a_handler_that_hangs_is_ended_its_fact_comes_again_and_the_others_go_on(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settle, "HANDLE_S", 0.2)
    monkeypatch.setattr(settle, "KEEP_S", 0.1)
    gate = Gate("n1")
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    await publish(bus, "c1", fact(NodeDrained, "n2"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", gate, concurrency=1).run)
        await until(lambda: gate.begun.count("NodeDrained:n1:0") == 2)
        assert gate.done == ["NodeDrained:n2:0"]
        gate.opened.set()
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert gate.done == ["NodeDrained:n2:0", "NodeDrained:n1:0"]
    assert "handler hung" in caplog.messages


async def test_what_a_consumer_holds_when_it_is_stopped_goes_to_the_next_at_once(bus: Bus) -> None:
    gate, seen = Gate(), Seen()
    for number in range(3):
        await publish(bus, "c1", fact(NodeDrained, "n1", number))
    consumer = FactConsumer(bus, "c1", "test", gate)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await until(lambda: consumer.held == 3)
        tasks.cancel_scope.cancel()
    assert consumer.held == 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 3)  # The server itself would wait for half a minute.
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert sorted(seen.ids) == [f"NodeDrained:n1:{number}" for number in range(3)]


async def test_a_durable_with_other_settings_is_given_ours(bus: Bus) -> None:
    stream, seen = subjects.fact_stream("c1"), Seen()
    theirs = ConsumerConfig(
        durable_name="test", ack_wait=5, max_deliver=3, max_ack_pending=7, filter_subject="sunk.ev.c1.x"
    )
    await create_consumer(bus, stream, theirs)
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 1)
        tasks.cancel_scope.cancel()

    config = (await bus.js.consumer_info(stream, "test")).config
    assert (config.ack_wait, config.max_deliver, config.max_ack_pending) == (30, -1, 1000)
    assert config.filter_subject == "sunk.ev.c1.>"


async def test_a_durable_whose_settings_cannot_be_changed_is_reported_and_not_used(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    stream, seen = subjects.fact_stream("c1"), Seen()
    theirs = ConsumerConfig(durable_name="test", deliver_policy=DeliverPolicy.NEW)
    await create_consumer(bus, stream, theirs)
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    consumer = FactConsumer(bus, "c1", "test", seen)

    def errors() -> list[str]:
        return [str(vars(one)["error"]) for one in caplog.records if one.message == "consumer not made"]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await until(lambda: bool(errors()))
        assert not consumer.is_consuming
        await bus.js.delete_consumer(stream, "test")  # What a person does about it.
        await until(lambda: len(seen.ids) == 1)
        tasks.cancel_scope.cancel()

    assert "deliver policy can not be updated" in errors()[0]
