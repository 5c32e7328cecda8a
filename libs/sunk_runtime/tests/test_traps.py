"""The traps of nats-py 2.16 and NATS, each with what keeps us out of it.

| trap | kept out by |
|---|---|
| an update drops the TTL | every lease write states it; `test_renewing_states_the_time_to_live_again` |
| a marker of an ended TTL looks like a value | `test_a_lease_that_ended_is_not_renewed…` |
| fractions of a TTL are cut to 0 | ``ttl_s`` is whole seconds; here |
| publish_async never times out | not used; here |
| publish_async swallows a cancellation | not used; here |
| newer acknowledgement subjects end ordered consumers | not used; `test_a_view_reads_both_forms…` |
| KV watch is 19 s late after a restart | own pull; `test_a_view_reads_again_after_the_server_was_killed` |
| callbacks are serial | a task a question; `test_a_slow_answer_holds_up_nobody` |
| what is no text, or a flush that was given up, ends the reader | our client; `test_client.py` |
| headers beyond max_payload close the client for good | sizes checked before; here |
| 60 reconnects, then closed for ever | -1; `test_a_connection_that_is_closed…` |
| what timed out is sent all the same | ids and revisions; `test_a_publish_that_was_given_up…` |
| headers are changed by nats-py | fresh ones; `test_the_callers_headers_are_left_as_they_are` |
| denials are time-outs | their text is in the error; `test_a_denied_publish_says_that_it_was_denied` |
| a consumer a call (keys, history, watch) | not used; here |
| a task a message | not used; here |
| no retry of 503 | `test_a_publish_while_no_server_leads_the_stream_is_repeated_until_one_does` |
| asyncio only | the backend of all tests is asyncio |
| reads of a replica may be old | ``direct=False``; `test_buckets_answer_from_the_leader_and_keep_one_value` |
| a stream that covers questions answers them | `test_a_strangers_stream_that_takes_our_questions_is_named` |
| one id on two subjects of a stream is one message | ids name the fact; here |
"""

from collections.abc import AsyncGenerator, Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import sunk_runtime
from sunk_events import subjects
from sunk_events.codec import OversizeError
from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

BUCKET = subjects.bucket("c1", SlurmNodeState)
NODE = SlurmNodeState(node="n2", state="IDLE", changed=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def generous(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "generous", extra="max_payload: 8MB") as server:
        yield server


@pytest.fixture
async def roomy(generous: NatsServer) -> AsyncGenerator[Bus]:
    settings = BusSettings(url=generous.url)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        yield bus


async def dead_letters(bus: Bus) -> int:
    return (await bus.js.stream_info(subjects.DEAD_LETTER_STREAM)).state.messages


@pytest.mark.parametrize(
    "call",
    [
        "publish_async",
        "key_value(",
        ".watch(",
        ".fetch(",
        "ordered_consumer",
        "subscription.messages",
        "micro",
    ],
)
def test_what_traps_us_in_nats_py_is_not_used(call: str) -> None:
    folder = Path(sunk_runtime.__file__).parent

    assert [file.name for file in folder.glob("*.py") if call in file.read_text()] == []


async def test_two_megabytes_of_somebody_else_in_our_bucket_are_a_dead_letter_and_stop_nothing(
    roomy: Bus,
) -> None:
    view = StateView(roomy, "c1", SlurmNodeState)
    await roomy.send(subjects.key_subject(BUCKET, "n1"), b"x" * 2_000_000)
    async with following(view):
        await until(lambda: view.is_complete)
        await until(lambda: "n1" in view.undecodable)
        await StateWriter(roomy, view, fence=None).record("n2", NODE, revision=0)

        async def is_buried() -> bool:
            return await dead_letters(roomy) == 1

        await until(is_buried)
        assert (view.get("n2"), roomy.reconnects) == (NODE, 0)


async def test_headers_that_would_end_the_connection_are_never_sent(bus: Bus) -> None:
    with pytest.raises(OversizeError, match="bytes of headers, at most 2048"):
        await bus.publish(subjects.key_subject(BUCKET, "n1"), b"", msg_id="x" * 5000)

    assert (bus.is_connected, bus.reconnects) == (True, 0)


async def test_a_server_whose_messages_are_too_small_for_ours_is_refused_at_start(tmp_path: Path) -> None:
    with (
        NatsServer(tmp_path / "small", extra="max_payload: 100000") as server,
        pytest.raises(PermanentError, match=r"max_payload of the server is 100000 bytes, needed are 266240"),
    ):
        async with connect(BusSettings(url=server.url), "test"):
            pytest.fail("connected")


async def test_a_ttl_of_one_second_is_kept_and_not_cut_to_none(bus: Bus) -> None:
    subject = subjects.key_subject(BUCKET, "n1")
    await bus.publish(subject, b"1", ttl_s=1)

    async def is_over() -> bool:
        found = await bus.last(subjects.bucket_stream(BUCKET), subject)
        return found is None or "Nats-Marker-Reason" in found[1].headers

    await until(is_over)


async def test_a_purge_that_ends_leaves_no_marker_and_a_value_that_ends_leaves_one(bus: Bus) -> None:
    purged, ended = subjects.key_subject(BUCKET, "n1"), subjects.key_subject(BUCKET, "n2")
    await bus.publish(purged, b"", headers={"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, ttl_s=1)
    await bus.publish(ended, b"1", ttl_s=1)
    stream = subjects.bucket_stream(BUCKET)

    async def is_over() -> bool:
        last = await bus.last(stream, ended)
        return last is not None and "Nats-Marker-Reason" in last[1].headers

    await until(is_over)

    async def is_gone() -> bool:
        return await bus.last(stream, purged) is None

    await until(is_gone)
    assert (await bus.js.stream_info(stream)).state.messages == 1


async def test_one_id_on_two_subjects_is_one_message_so_an_id_names_its_fact(bus: Bus) -> None:
    stored = {await bus.publish(f"sunk.ev.c1.test.{name}", b"", msg_id="same") for name in "ab"}

    assert len(stored) == 1
