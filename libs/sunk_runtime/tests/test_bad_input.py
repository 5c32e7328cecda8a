"""What comes in wrong, and what says so. Data ends as an answer or a dead letter, settings end the start.

| what | where it comes in | the test that shows what becomes of it |
|---|---|---|
| no JSON | facts | `test_a_fact_that_cannot_be_read_is_a_dead_letter_and_the_next_is_handled` |
| no JSON | states | `test_a_value_that_cannot_be_read_is_unknown_and_a_dead_letter_and_not_absent` |
| no JSON, unknown type | questions | `test_a_malformed_question_is_refused_with_the_reason` |
| the same | answers | `test_an_answer_that_is_not_of_the_contract_is_an_error_and_not_a_no` |
| unknown major version | facts | `test_a_fact_that_cannot_be_read_is_a_dead_letter_and_the_next_is_handled` |
| unknown major version | states | `test_a_state_of_a_newer_type_does_not_keep_a_view_from_being_complete` |
| another's tag | facts | `test_a_fact_where_it_does_not_belong_says_why` |
| another's tag | states | `test_a_state_in_the_bucket_of_another_kind_is_refused` |
| another's tag | questions | `test_a_question_of_another_kind_is_refused_and_the_next_is_answered` |
| 2 MB | facts | `test_a_message_of_two_megabytes_is_a_dead_letter_and_the_next_is_handled` |
| 2 MB | states | `test_two_megabytes_of_somebody_else_in_our_bucket_are_a_dead_letter_and_stop_nothing` |
| 2 MB | questions | `test_a_question_of_two_megabytes_is_refused_and_the_next_is_answered` |
| too large, our own | publish | `test_what_is_too_large_is_never_sent_and_the_connection_lives` |
| wildcards in a name | facts | `test_a_fact_about_a_name_of_wildcards_is_about_that_name_only` |
| wildcards in a name | states | `test_a_key_of_wildcards_is_one_key` |
| a key that is no UTF-8 | states | `test_a_key_that_is_no_utf_8_is_a_dead_letter_and_nothing_stops` |
| clock hours off | ours or NATS' | `test_a_clock_that_is_hours_off_is_said_once_each_time` |
| clock hours off | facts | `test_a_fact_from_the_future_is_handled_and_whose_clock_is_off_is_said_once` |
| wrong credentials | at start | `test_a_wrong_password_is_said_and_not_retried_for_ever` |
| right lacking | at start | `test_each_right_that_our_user_lacks_is_named_with_what_to_do` |
| right lacking | publish | `test_a_denied_publish_is_said_at_once_and_for_ever` |
| other settings | streams | `test_a_stream_that_would_lose_our_data_is_refused_by_name_setting_and_remedy` |
| other settings | facts | `test_a_durable_whose_settings_cannot_be_changed_is_reported_and_not_used` |
| refused | dead letters | `test_a_dead_letter_that_cannot_be_stored_is_only_told` |
"""

import re
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from sunk_events import subjects
from sunk_events.base import Event, event_id
from sunk_events.codec import decode_reply, encode
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_events.requests import ConfirmNode, NodeConfirmed, NudgeNode, Refused
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.requests import answering, ask
from sunk_runtime.settle import FactConsumer
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter, publish

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUESTION = ConfirmNode(node="n1")
WILDCARDS = "n*.>"


async def confirm(request: ConfirmNode) -> NodeConfirmed:
    return NodeConfirmed(node=request.node, is_known=True, is_drained_and_idle=True)


async def refused(bus: Bus, data: bytes) -> Refused:
    """Return what *data* is answered, once the next question was answered as well."""
    answer = decode_reply((await bus.request(subjects.question("c1", QUESTION), data, 5.0)).data)
    assert isinstance(answer, Refused)
    assert isinstance(await ask(bus, "c1", QUESTION), NodeConfirmed)
    return answer


async def test_a_question_of_another_kind_is_refused_and_the_next_is_answered(bus: Bus) -> None:
    async with answering(bus, "c1", ConfirmNode, confirm):
        answer = await refused(bus, encode(NudgeNode(node="n1")))

    wanted = "expected sunk.request.v1.confirm_node, got sunk.request.v1.nudge_node"
    assert answer == Refused(code="malformed", reason=wanted)


async def test_a_question_of_two_megabytes_is_refused_and_the_next_is_answered(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "generous", extra="max_payload: 4MB") as server:
        async with (
            connect(BusSettings(url=server.url), "test") as bus,
            answering(bus, "c1", ConfirmNode, confirm),
        ):
            answer = await refused(bus, b"x" * 2_000_000)
            assert bus.reconnects == 0

    assert answer == Refused(code="malformed", reason="2000000 bytes: at most 262144 are allowed")


async def test_a_fact_about_a_name_of_wildcards_is_about_that_name_only(bus: Bus) -> None:
    seen: list[Event] = []

    async def handle(event: Event) -> None:
        seen.append(event)

    fact = NodeDrained(
        id=event_id("node_drained", WILDCARDS, 0),
        source="/c1/test",
        subject=WILDCARDS,
        time=NOW,
        data=NodeSnapshot(node=WILDCARDS, state="IDLE"),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "test", handle).run)
        await publish(bus, "c1", fact)
        await until(lambda: bool(seen))
        tasks.cancel_scope.cancel()

    assert seen == [fact]
    assert "*" not in subjects.fact("c1", fact)


async def test_a_key_of_wildcards_is_one_key(bus: Bus) -> None:
    view = StateView(bus, "c1", SlurmNodeState)
    writer = StateWriter(bus, view, fence=None)
    async with following(view):
        await view.complete()
        for name in ("n1", WILDCARDS):
            await writer.record(name, SlurmNodeState(node=name, state="IDLE", changed=NOW), revision=0)
        await writer.forget(WILDCARDS, revision=view.revision(WILDCARDS))

        fresh = StateView(bus, "c1", SlurmNodeState)
        async with following(fresh):
            await fresh.complete()
            assert fresh.keys() == ["n1"]


def test_every_test_of_the_table_is_there() -> None:
    libs = Path(__file__).parents[2]
    there = {
        name
        for path in libs.glob("*/tests/test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", __doc__ or ""))

    assert named - there == set()
    assert len(named) > 20
