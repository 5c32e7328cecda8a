"""Names that NATS could misread, on the way through a real server and back."""

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sunk_events import subjects
from sunk_events.base import Reply, event_id
from sunk_events.codec import decode_fact, decode_state, encode
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_events.requests import ConfirmNode, NodeConfirmed
from sunk_runtime.client import Client
from sunk_runtime.dead import publish_dead_letter
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.requests import answering, ask
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET = subjects.bucket("c1", SlurmNodeState)
LONGEST = "\U0001f600" * 253

hostile = st.sampled_from(".=*> \t\r\n$_-/%A2Eé日\U0001f600")
names = st.text(min_size=1, max_size=253) | st.text(hostile, min_size=1, max_size=253)


def drained(node: str, revision: int) -> NodeDrained:
    return NodeDrained(
        id=event_id("node_drained", node, revision),
        source="/c1/syncer",
        subject=node,
        time=NOW,
        data=NodeSnapshot(node=node, state="IDLE"),
    )


@given(name=names)
@example(name="*")
@example(name=">")
@example(name="ip-10.ec2")
@example(name="ip-10=2Eec2")
@example(name="\r")
@example(name="\n")
@example(name=" ")
@example(name="." * 253)
@example(name=LONGEST)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_a_fact_and_a_state_of_any_name_are_found_under_it(bus: Bus, name: str) -> None:
    view = StateView(bus, "c1", SlurmNodeState)
    async with following(view):
        await view.complete()
        before = view.revision(name)
        state = SlurmNodeState(node=name, state="IDLE", changed=NOW, reason=f"after {before}")
        event = drained(name, before)
        await StateWriter(bus, view, fence=None).record(name, state, [event], revision=before)

    fact = await bus.last(subjects.fact_stream("c1"), subjects.fact("c1", event))
    stored = await bus.last(subjects.bucket_stream(BUCKET), subjects.key_subject(BUCKET, name))

    assert fact is not None
    assert decode_fact(fact[1].subject, fact[1].data) == event
    assert stored is not None
    assert decode_state(SlurmNodeState, stored[1].data) == state
    assert subjects.key_of(BUCKET, stored[1].subject) == name


@pytest.mark.parametrize("name", ["*", ">", "a b", "." * 253, LONGEST], ids=lambda name: name[:3])
async def test_whoever_reads_the_bucket_knows_a_state_by_its_name(bus: Bus, name: str) -> None:
    state = SlurmNodeState(node=name, state="IDLE", changed=NOW)
    await bus.publish(subjects.key_subject(BUCKET, name), encode(state))
    view = StateView(bus, "c1", SlurmNodeState)

    async with following(view):
        await until(lambda: view.is_complete)

        assert view.keys() == [name]
        assert view.get(name) == state


@pytest.mark.parametrize("name", ["*", ">", "a b", "." * 253, LONGEST], ids=lambda name: name[:3])
async def test_a_question_about_any_name_reaches_whoever_answers(bus: Bus, name: str) -> None:
    async def echo(question: ConfirmNode) -> Reply:
        return NodeConfirmed(node=question.node, is_known=True, is_drained_and_idle=False)

    async with answering(bus, "c1", ConfirmNode, echo):
        reply = await ask(bus, "c1", ConfirmNode(node=name))

    assert reply == NodeConfirmed(node=name, is_known=True, is_drained_and_idle=False)


async def test_what_came_on_the_longest_subject_can_be_kept_among_the_dead_letters(bus: Bus) -> None:
    subject = subjects.fact("c1", drained(LONGEST, 0))

    assert await publish_dead_letter(bus, "c1", Message(Client(), subject, data=b"{"), "not JSON", msg_id="1")
    assert await bus.last(subjects.DEAD_LETTER_STREAM, subjects.DEAD_LETTERS) is not None
