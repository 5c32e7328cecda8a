from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
import pytest

from sunk_events import subjects
from sunk_events.base import Cause, event_id
from sunk_events.codec import MAX_BYTES, OversizeError, decode_event, encode
from sunk_events.nodes import NodeDrained, NodeSnapshot, NodeUndrained, SlurmNodeState
from sunk_runtime.errors import BusUnavailableError, ConflictError
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.tracing import because
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T1 = datetime(2026, 1, 2, tzinfo=UTC)
BUCKET = subjects.bucket("c1", SlurmNodeState)
STREAM = subjects.bucket_stream(BUCKET)
N1 = subjects.key_subject(BUCKET, "n1")

NodeView = StateView[SlurmNodeState]
NodeWriter = StateWriter[SlurmNodeState]


def node(state: str = "IDLE", changed: datetime = T0) -> SlurmNodeState:
    return SlurmNodeState(node="n1", state=state, changed=changed)


def drained(revision: int) -> NodeDrained:
    return NodeDrained(
        id=event_id("node_drained", "n1", revision),
        source="/c1/test",
        subject="n1",
        time=T0,
        data=NodeSnapshot(node="n1", state="IDLE"),
    )


def undrained(revision: int) -> NodeUndrained:
    return NodeUndrained(
        id=event_id("node_undrained", "n1", revision),
        source="/c1/test",
        subject="n1",
        time=T0,
        data=NodeSnapshot(node="n1", state="IDLE"),
    )


async def facts(bus: Bus) -> int:
    return (await bus.js.stream_info(subjects.fact_stream("c1"))).state.messages


class Unlucky(Bus):
    """The same connection, but the next write of a state, or of what *lost* ends, fails.

    It does so before it is sent, or after it was stored.
    """

    def __init__(self, real: Bus, *, is_stored: bool, lost: str = N1) -> None:
        self.__dict__.update(real.__dict__)
        self._is_stored = is_stored
        self._lost = lost
        self._is_due = True

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401 - whatever the real one takes
        if not (self._is_due and subject.endswith(self._lost)):
            return await super().publish(subject, data, **more)
        self._is_due = False
        if self._is_stored:
            await super().publish(subject, data, **more)
        raise BusUnavailableError("no acknowledgement")


@pytest.fixture
async def view(bus: Bus) -> AsyncGenerator[NodeView]:
    view = StateView(bus, "c1", SlurmNodeState)
    async with following(view):
        with anyio.fail_after(WITHIN_S):
            await view.complete()
        yield view


@pytest.fixture
def writer(bus: Bus, view: NodeView) -> NodeWriter:
    return StateWriter(bus, view, fence=None)


async def record(writer: NodeWriter, state: SlurmNodeState) -> None:
    """Record *state* with one fact, as a service does: decided on what the view holds now."""
    revision = writer.view.revision("n1")
    await writer.record("n1", state, [drained(revision)], revision=revision)


async def test_what_was_recorded_is_seen_at_once_and_stored(writer: NodeWriter, bus: Bus) -> None:
    await record(writer, node())

    assert writer.view.get("n1") == node()
    found = await bus.last(STREAM, N1)
    assert found is not None
    assert (found[0], found[1].data) == (writer.view.revision("n1"), encode(node()))
    assert await facts(bus) == 1


async def test_facts_name_what_they_were_recorded_because_of(writer: NodeWriter, bus: Bus) -> None:
    named = msgspec.structs.replace(undrained(0), cause="another:1")
    with because(Cause("SUNK_c1_kube_pod:n1:7")):
        await writer.record("n1", node(), [drained(0), named], revision=0)

    told = [await bus.js.get_msg(subjects.fact_stream("c1"), seq=seq) for seq in (1, 2)]
    assert [decode_event(message.data or b"").cause for message in told] == [
        "SUNK_c1_kube_pod:n1:7",
        "another:1",
    ]


async def test_the_same_state_is_neither_written_nor_announced_again(writer: NodeWriter, bus: Bus) -> None:
    await record(writer, node())
    revision = writer.view.revision("n1")

    await record(writer, node(changed=T1))

    assert (writer.view.revision("n1"), await facts(bus)) == (revision, 1)
    assert writer.view.get("n1") == node()


async def test_a_state_that_comes_again_is_a_second_fact(writer: NodeWriter, bus: Bus) -> None:
    for state in ("IDLE", "DOWN", "IDLE"):
        await record(writer, node(state))

    assert await facts(bus) == 3


async def test_a_crash_between_fact_and_state_repeats_the_fact_under_the_same_id(
    bus: Bus, view: NodeView
) -> None:
    writer = StateWriter(Unlucky(bus, is_stored=False), view, fence=None)
    with pytest.raises(BusUnavailableError):
        await record(writer, node())
    assert await facts(bus) == 1  # Fact first: it was told, the state was not stored.
    assert await bus.last(STREAM, N1) is None

    await record(writer, node(changed=T1))

    assert await facts(bus) == 1
    assert view.get("n1") == node(changed=T1)


async def test_a_state_whose_acknowledgement_was_lost_is_taken_for_written(bus: Bus) -> None:
    blind = StateView(bus, "c1", SlurmNodeState)  # Not running: it has not heard of the stored one yet.
    writer = StateWriter(Unlucky(bus, is_stored=True), blind, fence=None)
    with pytest.raises(BusUnavailableError):
        await record(writer, node())

    await record(writer, node())

    found = await bus.last(STREAM, N1)
    assert found is not None
    assert (blind.revision("n1"), blind.get("n1")) == (found[0], node())
    assert await facts(bus) == 1


async def test_a_deletion_whose_acknowledgement_was_lost_is_taken_for_done(bus: Bus, view: NodeView) -> None:
    await record(StateWriter(bus, view, fence=None), node())
    blind = StateView(bus, "c1", SlurmNodeState)
    blind.apply_own("n1", node(), view.revision("n1"))
    writer = StateWriter(Unlucky(bus, is_stored=True), blind, fence=None)
    with pytest.raises(BusUnavailableError):
        await writer.forget("n1", revision=blind.revision("n1"))

    await writer.forget("n1", revision=blind.revision("n1"))

    assert blind.get("n1") is None


async def test_what_was_decided_on_a_stale_state_is_not_written(bus: Bus, view: NodeView) -> None:
    blind = StateView(bus, "c1", SlurmNodeState)
    await record(StateWriter(bus, view, fence=None), node("DOWN"))

    with pytest.raises(ConflictError):
        await StateWriter(bus, blind, fence=None).record("n1", node("IDLE"), revision=0)

    assert blind.get("n1") == node("DOWN")  # The next decision is on what is there.
    await StateWriter(bus, blind, fence=None).record("n1", node("IDLE"), revision=blind.revision("n1"))
    await until(lambda: view.get("n1") == node("IDLE"))


async def test_forgetting_leaves_a_marker_and_forgetting_again_does_nothing(
    writer: NodeWriter, bus: Bus
) -> None:
    await record(writer, node())
    revision = writer.view.revision("n1")

    await writer.forget("n1", [drained(revision)], revision=revision)
    marker = writer.view.revision("n1")
    await writer.forget("n1", [drained(marker)], revision=marker)

    found = await bus.last(STREAM, N1)
    assert found is not None
    assert (found[0], found[1].headers.get("KV-Operation")) == (marker, "PURGE")
    assert int(found[1].headers["Nats-TTL"].removesuffix("s")) > 0
    assert await facts(bus) == 2


async def test_a_node_that_comes_back_is_recorded_over_the_marker(writer: NodeWriter) -> None:
    await record(writer, node())
    await writer.forget("n1", revision=writer.view.revision("n1"))

    await record(writer, node("DOWN"))

    assert writer.view.get("n1") == node("DOWN")


async def test_a_node_that_comes_back_after_its_marker_aged_out_is_recorded_once(
    writer: NodeWriter, bus: Bus
) -> None:
    await record(writer, node())
    await writer.forget("n1", revision=writer.view.revision("n1"))
    await bus.js.purge_stream(STREAM, subject=N1)  # As the server does after an hour, silently.

    await record(writer, node("DOWN"))

    assert writer.view.get("n1") == node("DOWN")
    assert await facts(bus) == 2
    await record(writer, node("IDLE"))
    assert writer.view.get("n1") == node("IDLE")


async def test_forgetting_what_somebody_erased_is_done(writer: NodeWriter, bus: Bus) -> None:
    await record(writer, node())
    await bus.js.purge_stream(STREAM, subject=N1)

    await writer.forget("n1", revision=writer.view.revision("n1"))

    assert (writer.view.get("n1"), writer.view.revision("n1")) == (None, 0)


async def test_a_state_over_one_that_cannot_be_read_is_written_though_it_looks_the_same(
    writer: NodeWriter, bus: Bus
) -> None:
    await record(writer, node())
    await bus.publish(N1, b"garbage")
    await until(lambda: writer.view.undecodable == {"n1"})

    await record(writer, node(changed=T1))

    assert (writer.view.get("n1"), writer.view.undecodable) == (node(changed=T1), set())
    found = await bus.last(STREAM, N1)
    assert found is not None
    assert msgspec.json.decode(found[1].data)["changed"] == "2026-01-02T00:00:00Z"


async def test_what_cannot_be_read_can_be_forgotten(writer: NodeWriter, bus: Bus) -> None:
    await bus.publish(N1, b"garbage")
    await until(lambda: writer.view.undecodable == {"n1"})

    await writer.forget("n1", revision=writer.view.revision("n1"))

    assert writer.view.undecodable == set()


async def test_a_state_that_was_published_and_not_stored_is_stored_before_the_next_and_its_end_published(
    bus: Bus, view: NodeView
) -> None:
    writer = StateWriter(Unlucky(bus, is_stored=False), view, fence=None)
    await StateWriter(bus, view, fence=None).record("n1", node(), revision=0)
    with pytest.raises(BusUnavailableError):
        await record(writer, node("DOWN"))
    revision = view.revision("n1")
    with pytest.raises(ConflictError, match="published only now"):
        await writer.record("n1", node(changed=T1), revision=revision)
    is_stored = view.get("n1") == node("DOWN")
    await record(writer, node(changed=T1))

    assert is_stored
    assert view.get("n1") == node(changed=T1)
    assert await facts(bus) == 2  # That it went down, and that it is back.


async def told(bus: Bus) -> list[str]:
    """Return what was told of n1, by the last word of its facts' subjects."""
    info = await bus.js.stream_info(subjects.fact_stream("c1"), subjects_filter=">")
    found_on = info.state.subjects or {}
    return sorted(subject.rpartition(".")[2] for subject, count in found_on.items() for _ in range(count))


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("lost", ["drained", "undrained"])
async def test_a_fact_whose_publish_failed_is_told_though_the_state_is_another_one_by_now(
    bus: Bus, view: NodeView, lost: str, *, is_stored: bool
) -> None:
    writer = StateWriter(Unlucky(bus, is_stored=is_stored, lost=f".{lost}"), view, fence=None)
    with pytest.raises(BusUnavailableError):
        await writer.record("n1", node("DOWN"), [drained(0), undrained(0)], revision=0)
    with pytest.raises(ConflictError, match="published only now"):
        await writer.record("n1", node("IDLE"), revision=0)

    assert view.get("n1") == node("DOWN")
    assert await told(bus) == ["drained", "undrained"]


async def test_facts_that_failed_are_told_with_the_same_state_though_it_comes_without_them(
    bus: Bus, view: NodeView
) -> None:
    writer = StateWriter(Unlucky(bus, is_stored=False, lost=".drained"), view, fence=None)
    with pytest.raises(BusUnavailableError):
        await record(writer, node("DOWN"))

    await writer.record("n1", node("DOWN", changed=T1), revision=0)

    assert view.get("n1") == node("DOWN", changed=T1)
    assert await told(bus) == ["drained"]


async def test_what_was_told_of_somebody_who_went_before_it_was_stored_is_stored_so_that_its_end_is_told(
    bus: Bus, view: NodeView
) -> None:
    writer = StateWriter(Unlucky(bus, is_stored=False), view, fence=None)
    with pytest.raises(BusUnavailableError):
        await record(writer, node())

    with pytest.raises(ConflictError, match="published only now"):
        await writer.forget("n1", revision=0)
    assert view.get("n1") == node()
    await writer.forget("n1", revision=view.revision("n1"))

    assert view.get("n1") is None


async def test_a_state_that_is_too_large_keeps_none_that_comes_later_from_being_told(
    writer: NodeWriter, bus: Bus
) -> None:
    await record(writer, node())
    big = msgspec.structs.replace(node("DOWN"), extra="x" * MAX_BYTES)
    with pytest.raises(OversizeError):
        await record(writer, big)
    before = await facts(bus)

    await record(writer, node("DOWN"))

    assert writer.view.get("n1") == node("DOWN")
    assert (before, await facts(bus)) == (1, 2)


async def test_a_fact_that_is_too_large_keeps_no_state_that_comes_later_from_being_told(
    writer: NodeWriter,
) -> None:
    big = msgspec.structs.replace(drained(0), data=NodeSnapshot(node="n1", state="x" * MAX_BYTES))
    with pytest.raises(OversizeError):
        await writer.record("n1", node("DOWN"), [big], revision=0)

    await record(writer, node("IDLE"))

    assert writer.view.get("n1") == node("IDLE")
