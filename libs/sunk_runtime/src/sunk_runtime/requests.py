"""ask() and answering(): questions between services, with deadlines.

What must stay true: no answer, an answerer that fails and an answerer whose views are incomplete are all
"later", never "no", and so is what a former leader knows; a question that is asked again has the same effect.
"""

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import msgspec

from sunk_events import subjects
from sunk_events.base import REASON_MAX, Reply, Request
from sunk_events.codec import OversizeError, UndecodableError, decode_reply, decode_request, encode
from sunk_events.requests import Later, Refused
from sunk_runtime.errors import (
    ConflictError,
    LostLeadershipError,
    NoAnswerError,
    PermanentError,
    TransientError,
)
from sunk_runtime.fencing import Fence
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.metrics import REQUESTS
from sunk_runtime.tracing import note, span

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Request)

TRY_S: Final = 5.0
"""One try; a caller that has more time asks again."""
AT_ONCE: Final = 1024
"""Questions under way at one answerer; one more is told to ask later."""


async def ask(bus: Bus, cluster: str, request: Request, *, timeout_s: float = TRY_S) -> Reply:
    """Ask once and return the answer, which may be `Later` or `Refused`.

    Raises:
        NoAnswerError: nobody answers it now, or nobody did in time.
        BusUnavailableError: the connection is down.
        PermanentError: the answer is not of the contract.
    """
    subject = subjects.question(cluster, request)
    with span("ask", type(request).__name__, subject):
        answer = await bus.request(subject, encode(request), min(timeout_s, TRY_S))
    try:
        return decode_reply(answer.data)
    except UndecodableError as error:
        if stream := _stored_by(answer.data):
            log.error("question captured", extra={"stream": stream, "subject": answer.subject})  # noqa: TRY400 - no bug, no traceback
            raise NoAnswerError(
                f"ask {type(request).__name__}: stream {stream} stored it, narrow its subjects"
            ) from error
        raise PermanentError(f"answer to {type(request).__name__}: {error}") from error


class _Stored(msgspec.Struct):
    """A stream's acknowledgement."""

    stream: str
    seq: int


def _stored_by(data: bytes) -> str:
    """Return the stream whose acknowledgement *data* is, if it is one."""
    try:
        return msgspec.json.decode(data, type=_Stored).stream
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


async def ask_until(
    bus: Bus, cluster: str, request: Request, *, deadline: float, pause_s: float = 0.2
) -> Reply:
    """Ask again until somebody says something other than `Later`, at most until *deadline*.

    Args:
        bus: Where to ask.
        cluster: The Slurm cluster.
        request: The question.
        deadline: In the event loop's time (`anyio.current_time`).
        pause_s: Between two tries.

    Raises:
        NoAnswerError, BusUnavailableError: what the last try before the deadline met.
    """
    while True:
        left = deadline - anyio.current_time()
        try:
            reply = await ask(bus, cluster, request, timeout_s=max(0.1, left))
        except TransientError as error:
            if left - pause_s <= 0:
                raise
            await anyio.sleep(min(pause_s, error.retry_after_s))
            continue
        if not isinstance(reply, Later) or left - pause_s <= 0:
            return reply
        await anyio.sleep(min(reply.retry_after_s, max(0.0, left)))


@asynccontextmanager
async def answering(
    bus: Bus,
    cluster: str,
    kind: type[R],
    answer: Callable[[R], Awaitable[Reply]],
    *,
    fence: Fence | None = None,
) -> AsyncGenerator[None]:
    """Answer questions of *kind* while the context lasts. Only a leader does.

    Each question is a task of its own, so a slow one holds nobody up. An error of *answer* is answered:
    transient ones with `Later`, permanent ones with `Refused`. A service that answers as leader hands its
    leadership in as *fence*: once that is lost, whatever it knows is old, and each answer is `Later`.
    """
    under_way = 0

    async with anyio.create_task_group() as tasks:

        async def receive(message: Message) -> None:
            nonlocal under_way
            if under_way >= AT_ONCE:
                await _reply(bus, message, Later(reason="too many questions at once"), kind)
                return
            under_way += 1  # Here, not in the task: a burst arrives before the first task runs.
            tasks.start_soon(one, message)

        async def one(message: Message) -> None:
            nonlocal under_way
            try:
                with span("answer", kind.__name__, message.subject, message.headers):
                    reply = _while_leading(await _answered(kind, message, answer), fence)
                    note("sunk.reply", type(reply).__name__)
                    await _reply(bus, message, reply, kind)
            finally:
                under_way -= 1

        async with bus.subscribed(subjects.questions(cluster, kind), receive):
            await bus.flush()
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()


async def _answered(kind: type[R], message: Message, answer: Callable[[R], Awaitable[Reply]]) -> Reply:
    try:
        return await answer(decode_request(kind, message.data))
    except UndecodableError as error:
        return Refused(code="malformed", reason=str(error)[:REASON_MAX])
    except TransientError as error:
        wait_s = error.retry_after_s if math.isfinite(error.retry_after_s) else 1.0
        return Later(reason=str(error)[:REASON_MAX], retry_after_s=wait_s)
    except ConflictError as error:
        return Later(reason=str(error)[:REASON_MAX], retry_after_s=0.1)
    except PermanentError as error:
        return Refused(code="refused", reason=str(error)[:REASON_MAX])
    except Exception:
        log.exception("question failed", extra={"subject": message.subject})
        return Later(reason="the service that answers failed; see its log")


def _while_leading(reply: Reply, fence: Fence | None) -> Reply:
    """Return *reply*, unless another may have led by now: a process may be held up anywhere."""
    try:
        if fence is not None:
            fence.check()
    except LostLeadershipError as error:
        return Later(reason=str(error)[:REASON_MAX])
    return reply


async def _reply(bus: Bus, message: Message, reply: Reply, kind: type[Request]) -> None:
    REQUESTS.labels(kind.__name__, type(reply).__name__).inc()
    if not subjects.is_inbox(message.reply):
        return  # NATS lets who asks name any subject, one that only we may write too.
    try:
        data = encode(reply)
    except OversizeError as error:
        log.error("answer too large", extra={"subject": message.subject, "error": str(error)})  # noqa: TRY400 - no bug here, no traceback
        data = encode(Later(reason=str(error)))
    try:
        await bus.send(message.reply, data)
    except TransientError as error:
        log.warning("answer lost", extra={"subject": message.subject, "error": str(error)})
