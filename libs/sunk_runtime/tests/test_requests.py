from collections.abc import Awaitable, Callable

import anyio
import pytest

from sunk_events import subjects
from sunk_events.base import Reply
from sunk_events.codec import encode
from sunk_events.requests import ConfirmNode, Later, LockWaiting, NodeConfirmed, Noted, NudgeNode, Refused
from sunk_lab.nats import NatsServer
from sunk_runtime import requests
from sunk_runtime.client import Client
from sunk_runtime.errors import (
    BusUnavailableError,
    ConflictError,
    LostLeadershipError,
    NoAnswerError,
    PermanentError,
    TransientError,
)
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.requests import answering, ask, ask_until
from sunk_runtime.testing import WITHIN_S, until

pytestmark = pytest.mark.anyio

QUESTION = ConfirmNode(node="n1")
ANSWER = NodeConfirmed(node="n1", is_known=True, is_drained_and_idle=True)


async def confirm(_: ConfirmNode) -> Reply:
    return ANSWER


def raising(error: Exception) -> Callable[[ConfirmNode], Awaitable[Reply]]:
    async def answer(_: ConfirmNode) -> Reply:
        raise error

    return answer


async def test_a_question_is_answered(bus: Bus) -> None:
    async with answering(bus, "c1", ConfirmNode, confirm):
        assert await ask(bus, "c1", QUESTION) == ANSWER


async def test_a_question_about_a_dotted_node_reaches_whoever_answers(bus: Bus) -> None:
    async def echo(question: ConfirmNode) -> Reply:
        return NodeConfirmed(node=question.node, is_known=True, is_drained_and_idle=False)

    async with answering(bus, "c1", ConfirmNode, echo):
        reply = await ask(bus, "c1", ConfirmNode(node="ip-10.ec2"))

    assert reply == NodeConfirmed(node="ip-10.ec2", is_known=True, is_drained_and_idle=False)


async def test_nobody_answers_is_later_at_once_and_never_no(bus: Bus) -> None:
    with (
        anyio.fail_after(WITHIN_S),
        pytest.raises(NoAnswerError, match="no service answers it now") as raised,
    ):
        await ask(bus, "c1", QUESTION, timeout_s=60)

    assert isinstance(raised.value, TransientError)


async def test_who_no_longer_answers_is_not_asked(bus: Bus) -> None:
    async with answering(bus, "c1", ConfirmNode, confirm):
        pass

    with pytest.raises(NoAnswerError):
        await ask(bus, "c1", QUESTION)


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        pytest.param(
            TransientError("busy", retry_after_s=3), Later(reason="busy", retry_after_s=3), id="later"
        ),
        pytest.param(ConflictError("stale"), Later(reason="stale", retry_after_s=0.1), id="conflict"),
        pytest.param(PermanentError("no"), Refused(code="refused", reason="no"), id="never"),
        pytest.param(KeyError("x"), Later(reason="the service that answers failed; see its log"), id="a bug"),
        pytest.param(TransientError("x" * 5000), Later(reason="x" * 1024), id="a long reason"),
    ],
)
async def test_an_answerer_that_fails_says_whether_to_ask_again(
    bus: Bus, error: Exception, reply: Reply
) -> None:
    async with answering(bus, "c1", ConfirmNode, raising(error)):
        assert await ask(bus, "c1", QUESTION) == reply


async def test_an_answer_that_is_too_large_is_later_and_the_answerer_lives(bus: Bus) -> None:
    async def everything(_: ConfirmNode) -> Reply:
        return LockWaiting(in_the_way=("x" * 1000,) * 1000)

    async with answering(bus, "c1", ConfirmNode, everything):
        for _ in "ab":
            reply = await ask(bus, "c1", QUESTION)
            assert isinstance(reply, Later)
            assert "lock_waiting of" in reply.reason


class Lead:
    """A fence that can be lost."""

    token = 1

    def __init__(self) -> None:
        self.is_lost = False

    def check(self) -> None:
        if self.is_lost:
            raise LostLeadershipError("the lease may have ended")


async def test_who_lost_its_lease_answers_later_whatever_it_knows(bus: Bus) -> None:
    """A process that was held up wakes with the questions of meanwhile, and what it knew before."""
    fence = Lead()

    async def held_up(_: ConfirmNode) -> Reply:
        fence.is_lost = True
        return ANSWER

    async with answering(bus, "c1", ConfirmNode, held_up, fence=fence):
        first = await ask(bus, "c1", QUESTION)
    async with answering(bus, "c1", ConfirmNode, raising(PermanentError("no")), fence=fence):
        second = await ask(bus, "c1", QUESTION)

    assert [type(first), type(second)] == [Later, Later]


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"type":"sunk.request.v9.confirm_node"}', b'{"type":"sunk.request.v1.confirm_node"}'],
)
async def test_a_malformed_question_is_refused_with_the_reason(bus: Bus, data: bytes) -> None:
    async with answering(bus, "c1", ConfirmNode, confirm):
        answer = await bus.request(subjects.question("c1", QUESTION), data, WITHIN_S)

    assert b'"sunk.reply.v1.refused","code":"malformed"' in answer.data


async def test_an_answer_that_is_not_of_the_contract_is_an_error_and_not_a_no(bus: Bus) -> None:
    async def babble(message: Message) -> None:
        await bus.send(message.reply, b'{"type":"sunk.reply.v9.maybe"}')

    async with bus.subscribed(subjects.questions("c1", ConfirmNode), babble):
        await bus.flush()
        with pytest.raises(PermanentError, match=r"unknown type 'sunk\.reply\.v9\.maybe'"):
            await ask(bus, "c1", QUESTION)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try may take as long as whoever asks has time."""
    monkeypatch.setattr(requests, "TRY_S", WITHIN_S)


@pytest.mark.usefixtures("patient")
async def test_a_slow_answer_holds_up_nobody(bus: Bus) -> None:
    slow_may_end = anyio.Event()

    async def answer(question: ConfirmNode) -> Reply:
        if question.node == "slow":
            await slow_may_end.wait()
        return Noted()

    replies: list[Reply] = []

    async def ask_slow() -> None:
        replies.append(await ask(bus, "c1", ConfirmNode(node="slow"), timeout_s=WITHIN_S))

    async with answering(bus, "c1", ConfirmNode, answer), anyio.create_task_group() as tasks:
        tasks.start_soon(ask_slow)
        for number in range(20):
            assert await ask(bus, "c1", ConfirmNode(node=f"n{number}")) == Noted()
        assert replies == []
        slow_may_end.set()
    assert replies == [Noted()]


@pytest.mark.usefixtures("patient")
async def test_too_many_questions_at_once_are_told_to_come_later(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "AT_ONCE", 20)
    may_end = anyio.Event()

    async def answer(_: ConfirmNode) -> Reply:
        await may_end.wait()
        return Noted()

    replies: list[Reply] = []

    async def one(number: int) -> None:
        replies.append(await ask(bus, "c1", ConfirmNode(node=f"n{number}"), timeout_s=WITHIN_S))

    async with answering(bus, "c1", ConfirmNode, answer), anyio.create_task_group() as tasks:
        for number in range(20 + 5):
            tasks.start_soon(one, number)
        await until(lambda: len(replies) == 5)
        may_end.set()
    assert [type(reply) for reply in replies] == [Later] * 5 + [Noted] * 20


async def test_asking_until_outlasts_later_and_a_missing_leader(bus: Bus) -> None:
    times = 0

    async def answer(_: ConfirmNode) -> Reply:
        nonlocal times
        times += 1
        return Later(reason="not read yet", retry_after_s=0.01) if times < 3 else ANSWER

    async def lead_later() -> None:
        await anyio.sleep(0.1)
        async with answering(bus, "c1", ConfirmNode, answer):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead_later)
        reply = await ask_until(bus, "c1", QUESTION, deadline=anyio.current_time() + WITHIN_S)
        assert (reply, times) == (ANSWER, 3)
        tasks.cancel_scope.cancel()


class Busy(Bus):
    """The same connection, on which each question is answered at once: later."""

    def __init__(self, real: Bus) -> None:
        self.__dict__.update(real.__dict__)

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Message:
        del data, timeout_s
        return Message(Client(), subject, data=encode(Later(reason="busy", retry_after_s=0.05)))


async def test_asking_until_ends_at_its_deadline_with_what_the_last_try_met(bus: Bus) -> None:
    with anyio.fail_after(WITHIN_S), pytest.raises(NoAnswerError):
        await ask_until(bus, "c1", QUESTION, deadline=anyio.current_time() + 0.3)

    with anyio.fail_after(WITHIN_S):
        reply = await ask_until(Busy(bus), "c1", QUESTION, deadline=anyio.current_time() + 0.3)

    assert isinstance(reply, Later)


async def test_a_refusal_is_not_asked_again(bus: Bus) -> None:
    asked = 0

    async def answer(_: ConfirmNode) -> Reply:
        nonlocal asked
        asked += 1
        return Refused(code="unknown_node", reason="no such node")

    async with answering(bus, "c1", ConfirmNode, answer):
        await ask_until(bus, "c1", QUESTION, deadline=anyio.current_time() + WITHIN_S)

    assert asked == 1


async def test_an_answerer_that_hangs_is_no_answer_when_the_time_is_over(bus: Bus) -> None:
    async def answer(_: ConfirmNode) -> Reply:
        await anyio.sleep_forever()
        return Noted()

    async with answering(bus, "c1", ConfirmNode, answer):
        with anyio.fail_after(WITHIN_S), pytest.raises(NoAnswerError, match=r"no answer in 0\.2 s"):
            await ask(bus, "c1", QUESTION, timeout_s=0.2)


async def test_questions_are_answered_again_after_the_server_was_killed(
    bus: Bus, server: NatsServer, settings: BusSettings
) -> None:
    async with answering(bus, "c1", ConfirmNode, confirm), connect(settings, "asker") as asker:
        server.kill()
        server.start()
        await until(lambda: (bus.reconnects, asker.reconnects) == (1, 1))

        reply = await ask_until(asker, "c1", QUESTION, deadline=anyio.current_time() + WITHIN_S)

        assert reply == ANSWER


async def test_a_question_hears_at_once_that_the_connection_broke_and_the_next_is_answered(
    bus: Bus, server: NatsServer, settings: BusSettings
) -> None:
    asked = anyio.Event()

    async def answer(_: ConfirmNode) -> Reply:
        if not asked.is_set():
            asked.set()
            await anyio.sleep_forever()
        return ANSWER

    async def ask_for_long(asker: Bus) -> None:
        with pytest.raises(BusUnavailableError, match="the connection broke"):
            await asker.request(subjects.question("c1", QUESTION), encode(QUESTION), 120.0)

    async with answering(bus, "c1", ConfirmNode, answer), connect(settings, "asker") as asker:
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask_for_long, asker)
                await asked.wait()
                server.kill()
                server.start()

        assert await ask_until(asker, "c1", QUESTION, deadline=anyio.current_time() + WITHIN_S) == ANSWER


async def test_a_question_asked_without_a_connection_is_answered_after_the_reconnect(
    bus: Bus, server: NatsServer
) -> None:
    replies: list[Reply] = []

    async def ask_meanwhile() -> None:
        replies.append(await ask_until(bus, "c1", QUESTION, deadline=anyio.current_time() + WITHIN_S))

    async with answering(bus, "c1", ConfirmNode, confirm), anyio.create_task_group() as tasks:
        server.kill()
        await until(lambda: not bus.is_connected)
        tasks.start_soon(ask_meanwhile)
        await until(lambda: bus.waiting == 1)
        server.start()
    assert replies == [ANSWER]


async def test_a_nudge_without_a_reply_address_does_no_harm(bus: Bus) -> None:
    nudged = anyio.Event()

    async def answer(_: NudgeNode) -> Reply:
        nudged.set()
        return Noted()

    async with answering(bus, "c1", NudgeNode, answer):
        await bus.send(
            subjects.question("c1", NudgeNode(node="n1")),
            b'{"type":"sunk.request.v1.nudge_node","node":"n1"}',
        )
        with anyio.fail_after(WITHIN_S):
            await nudged.wait()
