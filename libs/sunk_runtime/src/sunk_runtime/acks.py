# pyright: reportUnknownMemberType=false
"""JetStream's answers to what is published: one inbox for all of them, and a future for each.

nats-py's own request makes a random name for each answer, and objects of all that it says, at twice the
processor time. What must stay true: what is no answer of JetStream counts as none; messages go out in the
order of the calls, so nothing is waited for before one is handed to nats-py.

Source: nats-py 2.16; NATS, "JetStream wire API", the acknowledgement of a publish.
"""

import asyncio  # A future for each publish: nats-py calls back outside of any task of ours.
from itertools import count
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError

_NO_RESPONDERS: Final = "503"


class Refusal(msgspec.Struct, frozen=True):
    """Why JetStream did not store a message."""

    code: int
    err_code: int | None = None
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """What JetStream says of one message."""

    seq: int = 0
    error: Refusal | None = None


_decoder: Final = msgspec.json.Decoder(Ack)


class Acks:
    """Those of one connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = ""
        self._numbers = count()
        self._waiting: dict[str, asyncio.Future[Msg | None]] = {}

    async def publish(self, subject: str, data: bytes, headers: dict[str, str], timeout_s: float) -> int:
        """Store *data* and return its stream sequence; nats-py changes the *headers*.

        Raises:
            nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError: as nats-py's own request does.
        """
        number = str(next(self._numbers))
        loop = asyncio.get_running_loop()
        answer = self._waiting[number] = loop.create_future()
        timer = loop.call_later(timeout_s, _give_up, answer)
        try:
            await self._client.publish(subject, data, reply=f"{self._inbox}.{number}", headers=headers)
            ack = _understood(await answer)
        finally:
            timer.cancel()
            del self._waiting[number]
        if ack.error is not None:
            APIError.from_error(msgspec.to_builtins(ack.error))
        return ack.seq

    async def listen(self) -> None:
        """Subscribe to where answers come, once, before the first message; nats-py renews it by itself."""
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(
            f"{self._inbox}.*", cb=self._take, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def _take(self, message: Msg) -> None:
        """Hand an answer to the call that waits for it, if it still does."""
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)


def _understood(message: Msg | None) -> Ack:
    if message is None:
        raise TimeoutError
    if message.headers and message.headers.get("Status") == _NO_RESPONDERS:
        raise NoStreamResponseError
    try:
        ack = _decoder.decode(message.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NatsError("the answer is not from JetStream") from error
    if ack.error is None and ack.seq <= 0:
        raise NatsError("the answer has no sequence")
    return ack


def _give_up(answer: "asyncio.Future[Msg | None]") -> None:
    """Say that no answer came in time."""
    if not answer.done():
        answer.set_result(None)
