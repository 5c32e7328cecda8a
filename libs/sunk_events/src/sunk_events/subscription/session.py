# pyright: reportUnknownMemberType=false
"""One connection to NATS, and the deliveries of one durable consumer over it, until anything breaks.

What must stay true: whatever ends the connection, or keeps deliveries from coming, ends the session with an
error: nothing here waits for ever. At most as many deliveries as there is room for are on their way.
Deliveries come without a gap.

nats-py does not reconnect here: a new session connects, and begins behind the last acknowledged delivery.
So no answer is waited for that went with the former connection, and nothing of that goes out later.

Source: nats-py 2.16, which tells a denial to `error_cb` only; NATS ADR-37 (pull) and ADR-60 (reset).
"""

import asyncio  # Programs of other teams have no anyio.
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError, NotJSMessageError

from sunk_events import subjects
from sunk_events.permissions import API
from sunk_events.subscription.address import Address, SafeClient, why_not_open
from sunk_events.subscription.answers import Answer, require_pull, require_version, required
from sunk_events.subscription.errors import RefusedError, SubscriberError, UnreachableError

log = logging.getLogger("sunk_events.subscriber")

ANSWER_S: Final = 5.0
CONNECT_S: Final = 10.0
HEARTBEAT_S: Final = 4.0
DEAD_S: Final = 10.0
EXPIRES_S: Final = 30.0
_BROKEN: Final = (NatsError, OSError, RuntimeError)
"""`RuntimeError` is uvloop's, where a socket was closed a moment ago."""


class Delivery:
    """One delivery of a message of the stream."""

    def __init__(self, session: "Session", message: Msg) -> None:
        self.session = session
        self.subject = message.subject
        self.data = message.data
        self.number = message.metadata.sequence.consumer
        self.place = (message.metadata.sequence.stream, message.metadata.timestamp)
        self._reply = message.reply

    async def acknowledge(self) -> None:
        """Say that it is done. What the server does not hear comes again."""
        await self.session.send(self._reply, b"+ACK")

    async def keep(self) -> None:
        """Say that it is still under way."""
        await self.session.send(self._reply, b"+WPI")


class Session:
    """One connection. What ended it is raised by whatever is called next."""

    def __init__(self, address: Address, cluster: str, consumer: str) -> None:
        self._address = address
        self._cluster = cluster
        self._stream = subjects.fact_stream(cluster)
        self._consumer = consumer
        self._client = SafeClient()
        self._inbox = ""
        self._come: deque[Delivery] = deque()
        self._news = asyncio.Event()
        self._requested = 0
        """How many of the last ask may still come."""
        self._expected = 1
        self._last: int | None = None
        """Number in the stream of the newest that came; None: numbers may be missing."""
        self._last_error: Exception | None = None
        self._why: SubscriberError | None = None
        self._limit: asyncio.Timeout | None = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connect.

        Raises:
            UnreachableError: NATS is not there.
            RefusedError: it does not take the user or its password, or we do not take its certificate.
        """
        user = self._address.user
        password, trust = self._address.secret(), self._address.trust()
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._client.connect(
                    servers=self._address.servers(),
                    user=user,
                    password=password,
                    tls=trust,
                    name=self._consumer,
                    inbox_prefix=subjects.inbox(user).encode(),
                    error_cb=self._note,
                    closed_cb=self._note_closed,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0.1,  # pyright: ignore[reportArgumentType] - it sleeps so long
                    ping_interval=10,
                    max_outstanding_pings=2,
                )
                self._inbox = self._client.new_inbox()
                await self._client.subscribe(self._inbox, cb=self._receive)
        except (*_BROKEN, TimeoutError) as error:
            raise why_not_open(self._address, error, self._last_error or error) from error

    async def close(self) -> None:
        """End the connection, whatever state it is in, and even if we are cancelled meanwhile."""
        self._end(UnreachableError("the session is over"))
        self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        with suppress(*_BROKEN, TimeoutError, AssertionError):  # The last: it never began to connect.
            async with asyncio.timeout(2):
                await self._client.close()

    async def consume(self, new: Mapping[str, object], settings: Mapping[str, object]) -> tuple[str, bool]:
        """Find or make the consumer; return when it was made, and if just now. `begin` comes next.

        Args:
            new: Settings that count where there is no such consumer yet: with which message it begins.
            settings: Those that it has from now on.

        Raises:
            UnreachableError: no answer.
            RefusedError: an older server, no such stream, no permission, or a consumer of another kind; names
                the fix.
        """
        self._require_version()
        about = f"{self._stream}.{self._consumer}"
        found = await self._ask(f"INFO.{about}")
        if is_new := found.is_unknown:
            wanted = {"durable_name": self._consumer, "ack_policy": "explicit", **new, **settings}
        else:
            self._require(found)
            require_pull(found, self._stream, self._consumer)
            filters = {"filter_subject", "filter_subjects"}
            kept = {name: value for name, value in found.config.items() if name not in filters}
            wanted = {**kept, **settings}
        if wanted != found.config:
            request = {"stream_name": self._stream, "config": {"name": self._consumer, **wanted}}
            found = self._require(await self._ask(f"CREATE.{about}", msgspec.json.encode(request)))
        if not is_new and "filter_subjects" not in settings:
            self._last = found.ack_floor.stream_seq
        return found.created, is_new

    async def begin(self) -> None:
        """Begin behind the consumer's last acknowledged delivery. Raises as `consume`.

        NATS does not answer this for a consumer that was removed since it was found.
        """
        self._require(await self._ask(f"RESET.{self._stream}.{self._consumer}"))

    def _require_version(self) -> None:
        found = self._client.connected_server_version
        with suppress(ValueError):  # One that is built by hand: it is asked.
            require_version(found.major, found.minor, found.patch)

    async def _ask(self, what: str, data: bytes = b"") -> Answer:
        doing = f"ask JetStream for {what}"
        try:
            async with self._waiting(doing, ANSWER_S):
                answer = await self._client.request(f"{API}.CONSUMER.{what}", data, timeout=2 * ANSWER_S)
            return msgspec.json.decode(answer.data, type=Answer)
        except NoRespondersError as error:
            raise UnreachableError(f"{doing}: JetStream does not answer, or not yet") from error
        except (*_BROKEN, TimeoutError, msgspec.DecodeError) as error:
            raise UnreachableError(f"{doing}: {error or type(error).__name__}") from error

    def _require(self, answer: Answer) -> Answer:
        return required(answer, self._stream, self._consumer, self._cluster)

    async def deliveries(self, room: Callable[[], int]) -> list[Delivery]:
        """Return what has come, in order and at least one, asking for no more than there is *room* for."""
        while not self._come:
            if not self._requested and (free := room()):
                await self._ask_for(free)
            self._news.clear()
            async with self._waiting("wait for messages of NATS", DEAD_S if self._requested else None):
                await self._news.wait()
        found = list(self._come)
        self._come.clear()
        for delivery in found:
            if delivery.number != self._expected:
                raise UnreachableError(
                    f"delivery {self._expected} of consumer {self._consumer} went to another program. Run "
                    "one program for each user: two programs receive facts twice and out of order. "
                    "A connection that was cut off may count as a program for half a minute"
                )
            self._expected += 1
            self._warn_of_gone(delivery.place[0])
        return found

    def _warn_of_gone(self, number: int) -> None:
        """Log which messages are not in the stream any more, where all must come."""
        if self._last is not None:
            if number > self._last + 1:
                text = (
                    "messages %d to %d of %s are gone: they reached their maximum age, or the stream its "
                    "maximum size, before they were handled"
                )
                log.warning(text, self._last + 1, number - 1, self._stream)
            self._last = max(self._last, number)

    def wake(self) -> None:
        """Have `deliveries` look whether there is room again."""
        self._news.set()

    async def send(self, subject: str, data: bytes) -> None:
        """Publish, unless the session is over."""
        if self._why is None:
            with suppress(*_BROKEN):
                await self._client.publish(subject, data)

    async def _ask_for(self, count: int) -> None:
        ask = {"batch": count, "expires": int(EXPIRES_S * 1e9), "idle_heartbeat": int(HEARTBEAT_S * 1e9)}
        subject = f"{API}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        self._requested = count
        try:
            await self._client.publish(subject, msgspec.json.encode(ask), reply=self._inbox)
        except _BROKEN as error:
            raise self._why or UnreachableError(f"the connection to NATS broke: {error}") from error

    async def _receive(self, message: Msg) -> None:
        if message.subject == self._inbox:
            self._heed(message.headers or {})
        elif _consumer_of(message) == (self._stream, self._consumer):
            self._requested = max(0, self._requested - 1)
            self._come.append(Delivery(self, message))
        self._news.set()

    def _heed(self, headers: Mapping[str, str]) -> None:
        """Take in what the server says of an ask: that it lives, that it is over, or why it cannot be."""
        match headers.get("Status"):
            case "100":
                pass
            case "404" | "408":
                self._requested = 0
            case status:
                self._end(UnreachableError(f"NATS ended the pull: {status} {headers.get('Description', '')}"))

    @asynccontextmanager
    async def _waiting(self, doing: str, seconds: float | None) -> AsyncGenerator[None]:
        """End the wait with what ends the session, or with an error after so many *seconds*."""
        if self._why is not None:
            raise self._why
        try:
            async with asyncio.timeout(seconds) as self._limit:
                yield
        except TimeoutError as error:
            raise self._why or UnreachableError(f"{doing}: no answer within {seconds} s") from error
        finally:
            self._limit = None
        if self._why is not None and not self._come:
            raise self._why

    def _end(self, why: SubscriberError) -> None:
        self._why = self._why or why
        self._news.set()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _note(self, error: Exception) -> None:
        """Take in what NATS, or nats-py, says of the connection."""
        self._last_error = error
        if "permissions violation" in str(error).lower():
            self._end(
                RefusedError(
                    f"NATS denies user {self._address.user!r} what a subscriber needs ({error}). Check that "
                    f"{self._cluster!r} is the cluster's name, and that this user may read it. A user of "
                    "nats.subscribers of helm/sunk may have one consumer, with the name of the user"
                )
            )

    async def _note_closed(self) -> None:
        self._end(UnreachableError("the connection to NATS broke"))


def _consumer_of(message: Msg) -> tuple[str, str] | None:
    """Return stream and consumer of a delivery; None: it is none."""
    try:
        return message.metadata.stream, message.metadata.consumer
    except (NotJSMessageError, ValueError, OverflowError, OSError):
        return None
