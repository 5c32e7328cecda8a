import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import ref

import anyio
import pytest
from nats.js.api import ConsumerInfo, StreamSource
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.codec import decode_event, encode
from sunk_events.dead import DeadLetter
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime import bucket_copy, pull, views
from sunk_runtime.connection import Connection, connected
from sunk_runtime.context import JetStream
from sunk_runtime.errors import ConflictError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.pull import Pull
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET = subjects.bucket("c1", SlurmNodeState)
STREAM = subjects.bucket_stream(BUCKET)
NodeView = StateView[SlurmNodeState]


def node(name: str, state: str = "IDLE") -> SlurmNodeState:
    return SlurmNodeState(node=name, state=state, changed=NOW)


async def put(bus: Bus, name: str, state: str = "IDLE") -> int:
    return await bus.publish(subjects.key_subject(BUCKET, name), encode(node(name, state)))


async def delete(bus: Bus, name: str, *, ttl_s: int = 60) -> int:
    headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
    return await bus.publish(subjects.key_subject(BUCKET, name), b"", ttl_s=ttl_s, headers=headers)


async def erase(bus: Bus, name: str) -> None:
    """Take away a key with its marker, as when the marker aged out."""
    await bus.js.purge_stream(STREAM, subject=subjects.key_subject(BUCKET, name))


@pytest.fixture
async def view(bus: Bus) -> AsyncGenerator[NodeView]:
    view = StateView(bus, "c1", SlurmNodeState)
    async with following(view):
        with anyio.fail_after(WITHIN_S):
            await view.complete()
        yield view


async def test_a_view_of_an_empty_bucket_is_complete(view: NodeView) -> None:
    assert (view.is_complete, view.values(), view.revision("n1")) == (True, [], 0)


async def test_a_view_is_complete_only_when_it_has_read_the_whole_bucket(bus: Bus) -> None:
    for number in range(1200):  # More than one batch of the pull.
        await put(bus, f"n{number}")
    view = StateView(bus, "c1", SlurmNodeState)
    with pytest.raises(TransientError, match="not read yet"):
        view.require_complete()

    async with following(view):
        with anyio.fail_after(WITHIN_S):
            await view.complete()

        view.require_complete()
        assert sorted(view.keys()) == sorted(f"n{number}" for number in range(1200))


async def test_a_view_follows_what_is_written(view: NodeView, bus: Bus) -> None:
    await put(bus, "n1")
    last = await put(bus, "n1", "DOWN")

    await until(lambda: view.get("n1") == node("n1", "DOWN"))
    assert view.revision("n1") == last


async def test_a_node_with_a_dotted_name_keeps_its_name(view: NodeView, bus: Bus) -> None:
    await put(bus, "ip-10.ec2")

    await until(lambda: view.keys() == ["ip-10.ec2"])


async def test_a_deleted_key_is_gone_and_its_marker_is_the_revision_to_write_on(
    view: NodeView, bus: Bus
) -> None:
    await put(bus, "n1")
    await until(lambda: len(view) == 1)

    marker = await delete(bus, "n1")

    await until(lambda: view.get("n1") is None)
    assert view.revision("n1") == marker


async def test_a_key_that_is_gone_for_longer_than_its_marker_lasts_is_not_remembered(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "CHECK_S", 0.1)
    monkeypatch.setattr(views, "MARKERS_S", 2.0)
    view = StateView(bus, "c1", SlurmNodeState)
    writer = StateWriter(bus, view, fence=None)
    async with following(view):
        await view.complete()
        for name in ("n1", "n2"):
            await writer.record(name, node(name), revision=0)
        await writer.forget("n1", revision=view.revision("n1"))
        await until(lambda: view.get("n1") is None)
        assert view.revision("n1")
        await anyio.sleep(2.5)

        await writer.record("n2", node("n2", "DOWN"), revision=view.revision("n2"))
        await until(lambda: not view.revision("n1"))

        assert view.is_complete
        await writer.forget("n2", revision=view.revision("n2"))
        await anyio.sleep(2.5)
        assert not view.is_untouched


async def test_a_view_that_starts_after_a_deletion_knows_that_the_key_is_absent(bus: Bus) -> None:
    await put(bus, "n1")
    await put(bus, "n2")
    marker = await delete(bus, "n1")
    view = StateView(bus, "c1", SlurmNodeState)

    async with following(view):
        await view.complete()

        assert (view.keys(), view.revision("n1")) == (["n2"], marker)


async def test_a_state_that_ends_by_its_ttl_is_gone(view: NodeView, bus: Bus) -> None:
    await bus.publish(subjects.key_subject(BUCKET, "n1"), encode(node("n1")), ttl_s=1)
    await until(lambda: len(view) == 1)

    await until(lambda: len(view) == 0)


async def test_each_consumer_of_changes_gets_each_key_at_least_once_and_the_latest_state(
    view: NodeView, bus: Bus
) -> None:
    await put(bus, "n1")
    await until(lambda: len(view) == 1)
    early = view.changes()
    assert await anext(early) == "n1"  # What is known already comes first.

    await put(bus, "n2", "IDLE")
    await put(bus, "n2", "DOWN")
    await until(lambda: view.get("n2") == node("n2", "DOWN"))
    await delete(bus, "n1")
    await until(lambda: view.get("n1") is None)

    assert [await anext(early), await anext(early)] == ["n2", "n1"]
    assert await anext(view.changes()) == "n2"


async def test_a_view_reads_again_after_the_server_was_killed(
    view: NodeView, bus: Bus, server: NatsServer
) -> None:
    await put(bus, "n1")
    await put(bus, "n2")
    await until(lambda: len(view) == 2)

    server.kill()
    server.start()
    await until(lambda: bus.reconnects == 1)
    await put(bus, "n1", "DOWN")

    await until(lambda: view.get("n1") == node("n1", "DOWN"))
    assert view.get("n2") == node("n2")
    await until(lambda: view.is_complete)


async def test_what_went_while_nobody_looked_is_found_gone(
    view: NodeView, bus: Bus, server: NatsServer, settings: BusSettings
) -> None:
    await put(bus, "n1")
    await put(bus, "n2")
    await until(lambda: len(view) == 2)
    changes = view.changes()
    assert {await anext(changes), await anext(changes)} == {"n1", "n2"}

    async with connect(settings, "other") as other:
        await erase(other, "n1")  # Without a marker nobody is told.
    server.kill()
    server.start()

    await until(lambda: view.get("n1") is None)
    assert (await anext(changes), view.revision("n1")) == ("n1", 0)


async def test_nothing_is_believed_absent_while_the_bucket_is_read_again(
    view: NodeView, bus: Bus, server: NatsServer
) -> None:
    await put(bus, "n1")
    await until(lambda: len(view) == 1)

    server.kill()
    await until(lambda: not view.is_complete)

    assert view.get("n1") == node("n1")
    with pytest.raises(TransientError):
        view.require_complete()
    server.start()
    await until(lambda: view.is_complete)


@pytest.fixture
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(pull, "DEAD_S", 0.5)


@pytest.mark.usefixtures("quick_heartbeats")
async def test_a_view_outlives_a_server_that_hangs(view: NodeView, bus: Bus, server: NatsServer) -> None:
    server.hang()
    await until(lambda: not view.is_complete and view.age_s >= pull.DEAD_S)

    server.resume()
    await until(lambda: view.is_complete)
    await put(bus, "n1")

    await until(lambda: view.get("n1") is not None)


COPY = "COPY"


class Lagging(Bus):
    """Reads a copy of the bucket in place of the bucket, as if that were the replica that it got."""

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, name)
        self.reads_copy = True
        self.js = OfCopy(self, connection)

    async def send(self, subject: str, data: bytes, *, reply: str = "") -> None:
        await super().send(subject.replace(STREAM, COPY) if self.reads_copy else subject, data, reply=reply)

    @asynccontextmanager
    async def subscribed(
        self, subject: str, receive: Callable[[Message], Awaitable[None]]
    ) -> AsyncGenerator[None]:
        async def of_the_bucket(message: Message) -> None:
            message.reply = message.reply.replace(COPY, STREAM)
            await receive(message)

        async with super().subscribed(subject, of_the_bucket):
            yield


class OfCopy(JetStream):
    def __init__(self, bus: Lagging, connection: Connection) -> None:
        super().__init__(connection, bus.clock)
        self._bus = bus

    async def add_consumer(self, stream: str, *more: Any, **others: Any) -> ConsumerInfo:  # noqa: ANN401 - whatever the real one takes
        return await super().add_consumer(COPY if self._bus.reads_copy else stream, *more, **others)


async def copy(bus: Bus, messages: int, **settings: Any) -> None:  # noqa: ANN401 - nats-py's
    """Make a copy of the bucket as it is now."""
    await bus.js.add_stream(name=COPY, mirror=StreamSource(STREAM, **settings), allow_msg_ttl=True)
    await until(lambda: copied(bus, messages))


async def copied(bus: Bus, messages: int) -> bool:
    return (await bus.js.stream_info(COPY)).state.messages == messages


@pytest.mark.usefixtures("quick_heartbeats")
async def test_a_view_that_read_a_replica_that_lags_is_not_complete_until_it_has_what_the_leader_has(
    bus: Bus, server: NatsServer
) -> None:
    await put(bus, "n1")
    await put(bus, "n2")
    await copy(bus, 1, filter_subject=subjects.key_subject(BUCKET, "n1"))

    async with connected("lagging", servers=[server.url], user="", password=None) as connection:
        lagging = Lagging(connection, "lagging")
        view = StateView(lagging, "c1", SlurmNodeState)
        seen = list[bool]()
        async with following(view):
            with view.recovery.waking(lambda: seen.append(view.get("n2") is not None)):
                await until(lambda: view.get("n1") is not None)
                before = reads()
                await until(lambda: reads() > before)  # It looks for a better replica.
                assert not view.is_complete

                lagging.reads_copy = False
                await until(lambda: view.is_complete)

        assert (sorted(view.keys()), seen) == (["n1", "n2"], [True])


def reads() -> float:
    return REGISTRY.get_sample_value("sunk_view_reads_total", {"bucket": BUCKET}) or 0


async def test_a_bucket_whose_last_key_left_no_marker_is_read_to_its_end(bus: Bus) -> None:
    await put(bus, "n1")
    await put(bus, "n2")
    await erase(bus, "n2")
    view = StateView(bus, "c1", SlurmNodeState)

    async with following(view):
        await until(lambda: view.is_complete)

        assert view.keys() == ["n1"]


async def test_a_bucket_of_which_nothing_is_left_is_complete(bus: Bus) -> None:
    await put(bus, "n1")
    await erase(bus, "n1")
    view = StateView(bus, "c1", SlurmNodeState)

    async with following(view):
        await until(lambda: view.is_complete)


async def test_who_no_longer_listens_is_not_kept(view: NodeView) -> None:
    listener = ref(view.changes())
    gc.collect()

    assert listener() is None


async def test_a_bucket_that_was_lost_is_made_again_and_followed(view: NodeView, bus: Bus) -> None:
    for _ in "abc":
        await put(bus, "n1")
    await until(lambda: view.revision("n1") == 3)

    await bus.js.delete_stream(STREAM)
    await until(lambda: view.get("n1") is None)
    assert not view.is_complete  # Its owner writes it anew.
    await put(bus, "n1", "DOWN")

    await until(lambda: view.get("n1") == node("n1", "DOWN"))
    assert view.revision("n1") == 1
    await until(lambda: view.is_complete)


async def test_a_view_knows_for_how_long_its_bucket_was_written_to_and_when_it_was_last(
    view: NodeView, bus: Bus
) -> None:
    never = float("-inf")
    assert (view.written_for_s, view.newest_age_s) == (never, float("inf"))
    await put(bus, "n1")
    await until(lambda: view.written_for_s > 0)
    await erase(bus, "n1")
    await anyio.sleep(1)
    late = StateView(bus, "c1", SlurmNodeState)
    async with following(late):
        await late.complete()
        assert late.is_untouched
        assert late.written_for_s > 1  # Written once is written, and the bucket is as old as its server says.
        assert late.newest_age_s == float("inf")

        await put(bus, "n2")
        await until(lambda: late.get("n2") is not None)
        assert late.written_for_s > 1
        latest = StateView(bus, "c1", SlurmNodeState)
        async with following(latest):
            await latest.complete()
            assert latest.written_for_s < late.written_for_s - 1  # For all that it can know.
        assert late.newest_age_s < late.written_for_s
        await bus.js.delete_stream(STREAM)
        await until(lambda: not late.keys() and late.written_for_s == never)

        assert late.newest_age_s < float("inf")  # What was lost was written all the same.


class Watch:
    """Says that the server's clock is ahead of ours by so much, whatever it says."""

    def __init__(self, skew_s: float) -> None:
        self.skew_s = skew_s

    def note(self, told: str, asked: datetime, answered: datetime | None = None) -> None:
        """Learn nothing."""


@pytest.mark.parametrize("skew_s", [-30, -5, 5, 30])
async def test_when_a_state_was_stored_is_told_on_our_clock_however_far_the_servers_is_off(
    view: NodeView, bus: Bus, monkeypatch: pytest.MonkeyPatch, skew_s: float
) -> None:
    await put(bus, "n1")
    await until(lambda: view.get("n1") is not None)
    monkeypatch.setattr(bus, "clock", Watch(skew_s))
    other = StateView(bus, "c1", SlurmNodeState)
    async with following(other):
        await other.complete()

    at, shifted = view.stored("n1"), other.stored("n1")
    assert at is not None
    assert shifted is not None
    assert (at - shifted).total_seconds() == pytest.approx(skew_s, abs=1e-3)


async def test_a_bucket_that_was_replaced_behind_our_back_is_believed_though_its_revisions_are_lower(
    view: NodeView, bus: Bus, settings: BusSettings
) -> None:
    for _ in "abc":
        await put(bus, "n1")
    await until(lambda: view.revision("n1") == 3)

    await bus.js.delete_stream(STREAM)
    await bus.provision("c1", settings)
    await put(bus, "n1", "DOWN")

    await until(lambda: view.get("n1") == node("n1", "DOWN"))
    assert view.revision("n1") == 1


async def dead_letters(bus: Bus) -> list[DeadLetter]:
    info = await bus.js.stream_info(subjects.DEAD_LETTER_STREAM, subjects_filter=">")
    letters: list[DeadLetter] = []
    for subject in info.state.subjects or {}:
        found = await bus.last(subjects.DEAD_LETTER_STREAM, subject)
        letter = decode_event(found[1].data) if found else None
        assert isinstance(letter, DeadLetter)
        letters.append(letter)
    return letters


async def test_a_value_that_cannot_be_read_is_unknown_and_a_dead_letter_and_not_absent(
    view: NodeView, bus: Bus
) -> None:
    await put(bus, "n1")
    await until(lambda: view.get("n1") == node("n1"))
    subject = subjects.key_subject(BUCKET, "n1")
    broken = await bus.publish(subject, b'{"type":"sunk.syncer.v1.slurm_node","node":7}')

    await until(lambda: view.undecodable == {"n1"})
    assert view.get("n1") == node("n1")
    assert view.revision("n1") == broken
    await until(lambda: dead_letters_hold(bus, subject))
    (letter,) = await dead_letters(bus)
    assert letter.data.payload == b'{"type":"sunk.syncer.v1.slurm_node","node":7}'
    assert "node" in letter.data.reason

    await put(bus, "n1", "DOWN")
    await until(lambda: view.get("n1") == node("n1", "DOWN"))
    assert view.undecodable == set()


async def dead_letters_hold(bus: Bus, subject: str) -> bool:
    return [letter.data.on for letter in await dead_letters(bus)] == [subject]


async def test_a_state_of_a_newer_type_does_not_keep_a_view_from_being_complete(bus: Bus) -> None:
    await bus.publish(subjects.key_subject(BUCKET, "n1"), b'{"type":"sunk.syncer.v9.slurm_node"}')
    await put(bus, "n2")
    view = StateView(bus, "c1", SlurmNodeState)

    async with following(view):
        with anyio.fail_after(WITHIN_S):
            await view.complete()

        assert (view.keys(), view.undecodable) == (["n2"], {"n1"})


async def test_a_key_that_is_no_utf_8_is_a_dead_letter_and_nothing_stops(view: NodeView, bus: Bus) -> None:
    subject = subjects.key_subject(BUCKET, "a").removesuffix("a") + "=FF"
    await bus.publish(subject, encode(node("n1")))
    await put(bus, "n2")

    await until(lambda: view.keys() == ["n2"])
    await until(lambda: dead_letters_hold(bus, subject))


async def test_a_state_in_the_bucket_of_another_kind_is_refused(view: NodeView, bus: Bus) -> None:
    job = SlurmJobState(job=1, state="RUNNING", changed=NOW)
    await bus.publish(subjects.key_subject(BUCKET, "1"), encode(job))

    await until(lambda: view.undecodable == {"1"})
    assert view.values() == []


@pytest.fixture(params=["false", "true"], ids=["acks v1", "acks v2"])
def newer(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats", extra=f"feature_flags {{ js_ack_fc_v2: {request.param} }}") as server:
        yield server


async def test_a_view_reads_both_forms_of_acknowledgement_subjects(newer: NatsServer) -> None:
    settings = BusSettings(url=newer.url)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view = StateView(bus, "c1", SlurmNodeState)
        await put(bus, "n1")
        async with following(view):
            await view.complete()
            await put(bus, "n2")

            await until(lambda: sorted(view.keys()) == ["n1", "n2"])


async def test_what_we_wrote_ourselves_stays_when_the_bucket_is_read_meanwhile(bus: Bus) -> None:
    view = StateView(bus, "c1", SlurmNodeState)
    writer = StateWriter(bus, view, fence=None)
    async with following(view):  # The read of the empty bucket and the writes go on at the same time.
        for number in range(50):
            await writer.record(f"n{number}", node(f"n{number}"), revision=0)
        await view.complete()

        assert len(view) == 50
        await put(bus, "last")
        await until(lambda: view.get("last") is not None)
        assert len(view) == 51


async def came_back(bus: Bus, times: int) -> None:
    await until(lambda: bus.reconnects == times and bus.is_connected)


async def keep_store(server: NatsServer, bus: Bus, *read: NodeView) -> None:
    """Restart *server*, for the first time, with a copy of its store kept, until it is *read* again."""
    server.keep_store()
    await came_back(bus, 1)
    await until(lambda: all(view.is_complete for view in read))


async def test_a_bucket_that_went_back_is_followed_and_its_writer_goes_on(
    view: NodeView, bus: Bus, server: NatsServer
) -> None:
    writer = StateWriter(bus, view, fence=None)
    await writer.record("n1", node("n1"), revision=0)
    await writer.record("kept", node("kept"), revision=0)
    await keep_store(server, bus, view)
    for state in ("DOWN", "IDLE", "DOWN"):
        await writer.record("n1", node("n1", state), revision=view.revision("n1"))
    await writer.record("late", node("late"), revision=0)

    server.put_store_back()
    await came_back(bus, 2)
    await until(lambda: states_of(view) == {"n1": ("IDLE", 1), "kept": ("IDLE", 2)})

    await writer.record("n1", node("n1", "MIXED"), revision=view.revision("n1"))
    assert states_of(view) == {"n1": ("MIXED", 3), "kept": ("IDLE", 2)}
    await put(bus, "kept", "DOWN")
    await until(lambda: states_of(view) == {"n1": ("MIXED", 3), "kept": ("DOWN", 4)})


def states_of(view: NodeView) -> dict[str, tuple[str, int]] | None:
    """Return each key's state and revision; None while the view is not complete."""
    if not view.is_complete:
        return None
    entries = [(key, view.entry(key)) for key in sorted(view.keys())]
    return {key: (entry.value.state, entry.revision) for key, entry in entries if entry}


async def test_a_key_that_has_its_revision_again_with_another_value_is_looked_at(
    view: NodeView, bus: Bus, settings: BusSettings, server: NatsServer
) -> None:
    await keep_store(server, bus, view)
    await put(bus, "n1", "IDLE")
    await put(bus, "n2", "IDLE")
    await until(lambda: states_of(view) == {"n1": ("IDLE", 1), "n2": ("IDLE", 2)})
    changes = view.changes()
    assert {await anext(changes), await anext(changes)} == {"n1", "n2"}

    server.put_store_back()
    async with connect(settings, "other") as other:
        await put(other, "n1", "DOWN")
        await put(other, "n2", "IDLE")

    await until(lambda: states_of(view) == {"n1": ("DOWN", 1), "n2": ("IDLE", 2)})
    assert await anext(changes) == "n1"


async def test_who_reads_a_bucket_that_went_back_decides_on_nothing_until_its_owner_has_written_it_anew(
    bus: Bus, server: NatsServer
) -> None:
    mine, view = (StateView(bus, "c1", SlurmNodeState) for _ in "ab")
    writer = StateWriter(bus, mine, fence=None)
    async with following(mine, view):
        for name in ("changed", "back", "kept"):
            await writer.record(name, node(name), revision=0)
        await keep_store(server, bus, view, mine)
        await writer.record("changed", node("changed", "DOWN"), revision=mine.revision("changed"))
        for state in ("DOWN", "IDLE"):  # As it was, by now.
            await writer.record("back", node("back", state), revision=mine.revision("back"))
        await writer.record("late", node("late"), revision=0)
        await until(lambda: len(view) == 4)

        server.put_store_back()
        await came_back(bus, 2)
        await until(lambda: mine.is_complete and mine.get("changed") == node("changed"))
        await until(lambda: len(view) == 3 and view.get("changed") == node("changed"))
        is_believed = [view.is_complete]
        for name, state in (("changed", "DOWN"), ("back", "IDLE")):
            await writer.record(name, node(name, state), revision=mine.revision(name))
            await until(lambda name=name: view.revision(name) == mine.revision(name))
            is_believed.append(view.is_complete)
        await writer.record("late", node("late"), revision=0)

        assert is_believed == [False, False, False]
        await until(lambda: view.is_complete)


async def test_a_bucket_that_went_back_and_that_nobody_writes_anew_is_believed_after_a_while(
    view: NodeView, bus: Bus, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_copy, "DOUBT_S", 2.0)
    await keep_store(server, bus, view)
    await put(bus, "n1")
    await until(lambda: len(view) == 1)

    server.put_store_back()
    await until(lambda: len(view) == 0)
    assert not view.is_complete

    await until(lambda: view.is_complete)


async def test_a_bucket_that_stood_empty_for_long_was_not_written_to_before_its_first_key(bus: Bus) -> None:
    await anyio.sleep(2)  # It was lost, and made anew by who came first.
    before = monotonic()
    await put(bus, "n1")
    view = StateView(bus, "c1", SlurmNodeState)

    async with following(view):
        await view.complete()

        assert 0 < view.written_for_s <= monotonic() - before


async def test_a_key_that_was_gone_and_rises_with_an_older_bucket_is_in_doubt_though_its_marker_aged_out(
    bus: Bus, server: NatsServer
) -> None:
    mine, view = (StateView(bus, "c1", SlurmNodeState) for _ in "ab")
    writer = StateWriter(bus, mine, fence=None)
    async with following(mine):
        await mine.complete()
        for name in ("gone", "kept"):
            await writer.record(name, node(name), revision=0)
        await keep_store(server, bus, mine)
        await writer.forget("gone", revision=mine.revision("gone"))
        await erase(bus, "gone")
        async with following(view):
            await view.complete()
            assert view.keys() == ["kept"]

            server.put_store_back()
            await came_back(bus, 2)
            await until(lambda: mine.is_complete and mine.get("gone") is not None)
            await until(lambda: view.get("gone") is not None)
            is_believed = [view.is_complete, mine.is_settled]
            await writer.forget("gone", revision=mine.revision("gone"))
            await until(lambda: view.is_complete)

    assert is_believed == [False, False]
    assert (view.keys(), mine.is_settled) == (["kept"], True)


async def test_a_key_that_came_while_nobody_looked_is_in_no_doubt(bus: Bus, server: NatsServer) -> None:
    view = StateView(bus, "c1", SlurmNodeState)
    await put(bus, "n1")
    async with following(view):
        await view.complete()
        before = reads()
        server.keep_store()  # It is away meanwhile.
        await came_back(bus, 1)
        await put(bus, "n2")
        await until(lambda: reads() > before and view.keys() == ["n1", "n2"])
        await until(lambda: view.is_complete)
        assert view.is_settled


async def test_a_key_that_went_with_its_bucket_is_told_to_be_gone_by_who_writes_it(
    bus: Bus, settings: BusSettings
) -> None:
    mine, view = (StateView(bus, "c1", SlurmNodeState) for _ in "ab")
    writer = StateWriter(bus, mine, fence=None)
    async with following(mine, view):
        await mine.complete()
        for name in ("gone", "kept"):
            await writer.record(name, node(name), revision=0)
        await until(lambda: len(view) == 2)

        await bus.js.delete_stream(STREAM)
        await bus.provision("c1", settings)
        await until(lambda: mine.is_complete and not len(mine) and not len(view))
        doubts = mine.doubts()
        with anyio.fail_after(WITHIN_S):
            assert {await anext(doubts), await anext(doubts)} == {"gone", "kept"}
        await writer.record("kept", node("kept"), revision=0)
        is_believed = [view.is_complete, mine.is_settled]
        await writer.forget("gone", revision=0)
        await until(lambda: view.is_complete)

    assert (is_believed, mine.is_settled) == ([False, False], True)


async def test_what_its_owner_has_written_anew_before_the_bucket_is_read_again_is_in_no_doubt(
    bus: Bus, settings: BusSettings
) -> None:
    view = StateView(bus, "c1", SlurmNodeState)
    async with following(view):
        for name in ("first", "second"):
            await put(bus, name)
        await until(lambda: len(view) == 2)

    await bus.js.delete_stream(STREAM)
    await bus.provision("c1", settings)
    for name in ("second", "first"):
        await put(bus, name, "DOWN")
    async with following(view):
        await until(lambda: states_of(view) == {"first": ("DOWN", 2), "second": ("DOWN", 1)})
        assert view.is_settled


async def test_a_bucket_that_goes_back_to_a_copy_that_had_gone_on_by_itself_is_in_doubt_though_revisions_rise(
    view: NodeView, bus: Bus, server: NatsServer
) -> None:
    await put(bus, "n1")
    server.keep_store("early")
    await came_back(bus, 1)
    for state in ("DOWN", "MIXED", "DOWN"):
        await put(bus, "n1", state)
    await put(bus, "lost")
    server.keep_store("late")
    await came_back(bus, 2)
    await until(lambda: view.revision("lost") == 5 and view.is_complete)
    server.put_store_back("early")
    await came_back(bus, 3)
    await until(lambda: view.keys() == ["n1"])
    for name in ("n1", "lost"):
        await delete(bus, name)
    await until(lambda: view.is_complete and view.keys() == [])

    server.put_store_back("late")  # All of it is older than what was decided upon, and has higher revisions.
    await came_back(bus, 4)
    await until(lambda: sorted(view.keys()) == ["lost", "n1"])
    is_believed = [view.is_complete]
    await delete(bus, "lost")
    await until(lambda: view.keys() == ["n1"])
    is_believed.append(view.is_complete)
    await put(bus, "n1")

    await until(lambda: view.is_complete)
    assert is_believed == [False, False]


async def test_a_key_of_which_its_writer_finds_first_that_it_went_back_is_in_doubt_until_it_is_written(
    bus: Bus, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, view = (StateView(bus, "c1", SlurmNodeState) for _ in "ab")
    may_read = anyio.Event()
    writer = StateWriter(bus, mine, fence=None)
    async with following(mine, view):
        await writer.record("n1", node("n1"), revision=0)
        await keep_store(server, bus, mine, view)
        await writer.record("n1", node("n1", "DOWN"), revision=mine.revision("n1"))
        await writer.record("n2", node("n2"), revision=0)
        await until(lambda: len(view) == 2)

        read = mine._read  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - when it does is the test's to say

        async def read_later() -> None:
            await may_read.wait()
            await read()

        monkeypatch.setattr(mine, "_read", read_later)
        server.put_store_back()
        await came_back(bus, 2)
        for name in ("n1", "n2"):  # Before the view reads again.
            with pytest.raises(ConflictError):
                await writer.record(name, node(name, "MIXED"), revision=mine.revision(name))
        assert not mine.is_settled
        may_read.set()
        await until(lambda: mine.is_complete)
        assert (mine.is_doubtful("n1"), mine.is_doubtful("n2")) == (True, True)
        await writer.record("n1", node("n1"), revision=mine.revision("n1"))  # As it was, by now.
        await writer.forget("n2", revision=mine.revision("n2"))

        await until(lambda: view.is_complete)
        assert mine.is_settled


@pytest.mark.parametrize("purged", ["n1", "n2", None])
async def test_a_bucket_that_somebody_purges_is_read_again_and_written_anew_by_its_owner(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, purged: str | None
) -> None:
    monkeypatch.setattr(views, "CHECK_S", 0.2)
    mine, view = (StateView(bus, "c1", SlurmNodeState) for _ in "ab")
    writer = StateWriter(bus, mine, fence=None)
    async with following(mine, view):
        for name in ("n1", "n2"):
            await writer.record(name, node(name), revision=0)
        await until(lambda: len(view) == 2)

        subject = subjects.key_subject(BUCKET, purged) if purged else None
        await bus.js.purge_stream(STREAM, subject=subject)
        await until(lambda: not view.is_complete and len(view) < 2)
        doubts = mine.doubts()
        with anyio.fail_after(WITHIN_S):
            for _ in range(1 if purged else 2):
                name = await anext(doubts)
                await writer.record(name, node(name), revision=mine.revision(name))

        await until(lambda: view.is_complete and len(view) == 2)


async def test_what_its_writer_was_not_told_of_before_somebody_purged_it_is_read_to_be_gone(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = Pull.receive

    async def miss(pull: Pull, message: Message) -> None:
        if not message.subject.endswith(".n2"):
            await receive(pull, message)

    monkeypatch.setattr(views, "CHECK_S", 0.2)
    monkeypatch.setattr(Pull, "receive", miss)
    mine = StateView(bus, "c1", SlurmNodeState)
    writer = StateWriter(bus, mine, fence=None)
    async with following(mine):
        await mine.complete()
        await writer.record("n1", node("n1"), revision=0)
        await writer.record("n2", node("n2"), revision=0)
        await bus.js.purge_stream(STREAM, subject=subjects.key_subject(BUCKET, "n2"))

        await until(lambda: mine.is_complete and mine.keys() == ["n1"])


async def test_a_key_that_goes_back_to_before_what_its_writer_was_not_told_of_is_in_doubt(
    bus: Bus, server: NatsServer
) -> None:
    mine = StateView(bus, "c1", SlurmNodeState)
    writer = StateWriter(bus, mine, fence=None)
    await writer.record("n1", node("n1"), revision=0)
    await writer.record("n1", node("n1", "DOWN"), revision=1)
    server.keep_store()
    await came_back(bus, 1)
    await writer.record("n1", node("n1"), revision=2)

    server.put_store_back()
    await came_back(bus, 2)
    async with following(mine):
        await until(lambda: mine.is_complete)
        assert (mine.revision("n1"), mine.is_settled) == (2, False)


@pytest.mark.usefixtures("quick_heartbeats")
async def test_what_was_written_anew_is_in_no_doubt_after_a_replica_that_lags_was_read_first(
    bus: Bus, server: NatsServer, settings: BusSettings
) -> None:
    async with connected("lagging", servers=[server.url], user="", password=None) as connection:
        lagging = Lagging(connection, "lagging")
        lagging.reads_copy = False
        view = StateView(lagging, "c1", SlurmNodeState)
        async with following(view):
            for name in ("n1", "n2", "n3"):
                await put(bus, name)
            await until(lambda: len(view) == 3)
        await bus.js.delete_stream(STREAM)
        await bus.provision("c1", settings)
        for name in ("n3", "n2"):
            await put(bus, name, "DOWN")
        await copy(bus, 2)
        await bus.js.update_stream(name=COPY, allow_msg_ttl=True)  # No mirror any more.
        await put(bus, "n1", "DOWN")
        lagging.reads_copy = True
        before = reads()
        async with following(view):
            await until(lambda: reads() > before + 1)
            lagging.reads_copy = False
            await until(lambda: view.is_complete)


@pytest.mark.usefixtures("quick_heartbeats")
async def test_a_replica_that_lags_takes_nobody_back_to_what_was(bus: Bus, server: NatsServer) -> None:
    old = await put(bus, "n1")
    await put(bus, "n2")
    await copy(bus, 2, opt_start_seq=old)
    await bus.js.update_stream(name=COPY, allow_msg_ttl=True)  # No mirror any more.
    await put(bus, "n1", "DOWN")
    async with connected("lagging", servers=[server.url], user="", password=None) as connection:
        lagging = Lagging(connection, "lagging")
        lagging.reads_copy = False
        view = StateView(lagging, "c1", SlurmNodeState)
        async with following(view):
            await until(lambda: view.is_complete)
            told = view.changes()
            assert sorted(told.taken()) == ["n1", "n2"]
            seen = list[SlurmNodeState | None]()
            before = reads()
            lagging.reads_copy = True
            server.kill()
            server.start()
            await until(lambda: seen.append(view.get("n1")) or reads() > before + 2)
            lagging.reads_copy = False
            await until(lambda: view.is_complete)

        assert set(map(state_of, seen)) == {"DOWN"}
        assert told.taken() == ()


def state_of(seen: SlurmNodeState | None) -> str:
    return seen.state if seen else ""
