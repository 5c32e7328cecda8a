from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from sunk_events import subjects
from sunk_events.base import Event, event_id
from sunk_events.codec import decode_event
from sunk_events.dead import DeadLetter
from sunk_events.nodes import NodeDown, NodeDrained, NodeSnapshot
from sunk_lab.nats import NatsServer
from sunk_runtime import settle
from sunk_runtime.errors import ConflictError, PermanentError, TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.pull import Position, position
from sunk_runtime.settle import MAX_DELIVER, FactConsumer
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
    monkeypatch.setattr(settle, "AGAIN_S", 0.1)


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
    info: dict[str, Any] = await bus.api(f"CONSUMER.INFO.{subjects.fact_stream('c1')}.test", {})
    return info["num_ack_pending"], info["num_pending"]


async def is_settled(bus: Bus) -> bool:
    return await outstanding(bus) == (0, 0)


async def dead_letter(bus: Bus) -> DeadLetter | None:
    found = await bus.last(subjects.DEAD_LETTER_STREAM, subjects.DEAD_LETTERS)
    letter = decode_event(found[1].data) if found else None
    assert letter is None or isinstance(letter, DeadLetter)
    return letter


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


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b'{"type":"sunk.syncer.v9.new"}'], ids=["empty", "no JSON", "unknown"]
)
async def test_a_fact_that_cannot_be_read_is_a_dead_letter_and_the_next_is_handled(
    bus: Bus, data: bytes
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
    info: dict[str, Any] = await bus.api(f"STREAM.INFO.{subjects.DEAD_LETTER_STREAM}", {})
    assert info["state"]["messages"] == 1


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
async def test_nothing_is_ended_before_its_dead_letter_is_stored(bus: Bus) -> None:
    seen = Seen(PermanentError("no"), PermanentError("no"))
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(Delivery(bus), "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == 2)
        await until(lambda: is_settled(bus))
        tasks.cancel_scope.cancel()

    assert await dead_letter(bus) is not None


async def test_what_is_deferred_to_the_last_delivery_is_a_dead_letter(bus: Bus) -> None:
    seen = Seen(*(TransientError("down", retry_after_s=0.01) for _ in range(20)))
    await publish(bus, "c1", fact(NodeDrained, "n1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", seen).run)
        await until(lambda: len(seen.ids) == MAX_DELIVER)
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
        await bus.api(f"STREAM.DELETE.{subjects.fact_stream('c1')}", {})

        async def publishes() -> bool:
            try:
                await publish(bus, "c1", fact(NodeDrained, "n2"))
            except TransientError:
                return False
            return "NodeDrained:n2:0" in seen.ids

        await until(publishes)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("$JS.ACK.STREAM.test.2.41.42.1700000000000000000.7", id="first form"),
        pytest.param("$JS.ACK.domain.hash.STREAM.test.2.41.42.1700000000000000000.7.x", id="second form"),
    ],
)
def test_a_delivery_says_where_it_stands(reply: str) -> None:
    assert position(reply) == Position(stream_seq=41, consumer_seq=42, pending=7, delivered=2)
