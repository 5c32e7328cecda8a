# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
"""The bus as services see it: publish, read, ask, subscribe.

What must stay true: a publish is acknowledged or raises; a message larger than the contract allows never
reaches the server (it would close the connection for good). Services see nothing of nats-py.

Source: nats-py 2.16; NATS ADR-37 (pull consumers), ADR-43 (message TTL).
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, cast

import anyio
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import NoRespondersError

from sunk_events import subjects
from sunk_runtime.bus_settings import BusSettings
from sunk_runtime.bus_tls import Trust
from sunk_runtime.clock import ServerClock
from sunk_runtime.connection import Connection, connected
from sunk_runtime.context import JetStream
from sunk_runtime.errors import (
    BusUnavailableError,
    JetStreamRejectedError,
    NoAnswerError,
    NoResponderError,
    SunkError,
)
from sunk_runtime.fencing import Fence
from sunk_runtime.message import Message
from sunk_runtime.nats_errors import BROKEN, is_of_the_connection
from sunk_runtime.provision import Provisions
from sunk_runtime.publishing import Outgoing, Publisher
from sunk_runtime.recovery import Recovery
from sunk_runtime.tracing import outgoing

__all__ = ["Bus", "BusSettings", "Message", "connect"]

log = logging.getLogger(__name__)

PUBLISH_TIMEOUT_S: Final = 5.0
CLOCK_S: Final = 30.0
"""How often our clock is compared with the server's."""
_NOTHING_THERE: Final = frozenset({10037, 10059})
"""No such message, no such stream."""


class Bus:
    """One connection. Make it with `connect`."""

    def __init__(self, connection: Connection, name: str, *, retry_s: float = 0.0) -> None:
        self._connection = connection
        self._client = connection.client
        self.name = name
        self.publish_timeout_s = PUBLISH_TIMEOUT_S
        """How long a publish waits for its acknowledgement."""
        self.publish_retry_s = retry_s
        """How long a publish is repeated while no server leads its stream."""
        self.clock = ServerClock()
        self.js = JetStream(connection, self.clock)
        """nats-py's own calls of JetStream, which raise our errors."""
        self._publisher = Publisher(connection)
        self.recovery: Final[Recovery] = connection.recovery
        """Told whenever the connection came back."""
        self._provisions = Provisions(self.js)

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands now."""
        return self._client.is_connected

    @property
    def has_space(self) -> bool:
        """Whether NATS has space for what we write, as far as we have tried lately."""
        return self._publisher.space.is_there

    @property
    def reconnects(self) -> int:
        """How often the connection came back."""
        return self._connection.reconnects

    @property
    def breaks(self) -> int:
        """How often the connection broke; a reader that sees it move reads anew."""
        return self._connection.breaks

    @property
    def waiting(self) -> int:
        """How many calls wait for the server's answer now."""
        return self._connection.waiting

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        msg_id: str | None = None,
        expected_revision: int | None = None,
        ttl_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        fence: Fence | None = None,
    ) -> int:
        """Store *data* and return its stream sequence; with *msg_id*, twice is once.

        Args:
            subject: A subject of a stream, from `sunk_events.subjects`.
            data: The payload.
            msg_id: ``Nats-Msg-Id``, for the stream's duplicate window.
            expected_revision: Refuse unless the subject's last sequence is this; 0 means no message yet.
            ttl_s: Whole seconds after which the server drops the message and leaves a marker.
            headers: More headers.
            fence: A leader's leave to write. None only for what is no leader's write.

        Raises:
            OversizeError: *data* is larger than the contract allows.
            ConflictError: *expected_revision* does not hold.
            LostLeadershipError: the *fence* says so; nothing was sent.
            FullError: NATS has no space; nothing was stored.
            BusUnavailableError: no acknowledgement came; the message may have been stored all the same.
        """
        sent = Outgoing(subject, data, msg_id, expected_revision, ttl_s, headers or {})
        return await self._publisher.publish(
            sent, fence, timeout_s=self.publish_timeout_s, retry_s=self.publish_retry_s
        )

    async def last(self, stream: str, subject: str) -> tuple[int, Message] | None:
        """Return the last message on *subject* with its sequence, read from the stream's leader."""
        try:
            found = await self.js.get_last_msg(stream, subject, direct=False)
        except JetStreamRejectedError as error:
            if error.err_code not in _NOTHING_THERE:
                raise
            return None
        sequence = found.seq or 0
        return sequence, Message(
            self._client, found.subject or subject, data=found.data or b"", headers=found.headers or {}
        )

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Message:
        """Ask on *subject*.

        Raises:
            NoAnswerError: nobody listens, or nobody answered in time.
            BusUnavailableError: the connection is down, or broke meanwhile.
        """
        try:
            async with self._connection.awaiting(f"ask {subject}", subject):
                answer = await self._client.request(subject, data, timeout=timeout_s, headers=outgoing())
        except NoRespondersError as error:
            raise NoResponderError(f"ask {subject}: no service answers it now", retry_after_s=0.2) from error
        except BusUnavailableError as error:
            if self.is_connected and isinstance(error.__cause__, TimeoutError):
                raise NoAnswerError(
                    f"ask {subject}: no answer in {timeout_s:.1f} s{self._connection.hint()}"
                ) from error
            raise
        return cast("Message", answer)  # As all that the client makes.

    async def send(self, subject: str, data: bytes, *, reply: str = "") -> None:
        """Send without storing or acknowledgement: an answer, a pull, a nudge."""
        async with self._connection.awaiting(f"send to {subject}"):
            await self._client.publish(subject, data, reply=reply, headers=outgoing())

    async def send_bare(self, words: Coroutine[Any, Any, None]) -> None:
        """Await *words*, which a message sends: no trace, no scope, a fifth of what `send` costs.

        While there is no connection they are kept and go out at the reconnect.

        Raises:
            BusUnavailableError: too much is kept already, or the connection is closed for good.
        """
        try:
            await words
        except BROKEN as error:
            if not is_of_the_connection(error):
                raise
            raise BusUnavailableError(f"send: {type(error).__name__}") from error

    @asynccontextmanager
    async def subscribed(
        self, subject: str, receive: Callable[[Message], Awaitable[None]]
    ) -> AsyncGenerator[None]:
        """Call *receive* for each message on *subject*, one after the other, while the context lasts.

        Raises:
            PermanentError: NATS denies us *subject*; it says so a moment later, or after a reconnect.
        """

        async def deliver(message: Msg) -> None:
            await receive(cast("Message", message))

        with self._connection.permitted(f"subscribe to {subject}", subject):
            async with self._connection.awaiting(f"subscribe to {subject}"):
                subscription = await self._client.subscribe(
                    subject, cb=deliver, pending_bytes_limit=0, pending_msgs_limit=0
                )
            try:
                yield
            finally:
                await self._unsubscribe(subscription)

    def awaiting(self, doing: str) -> AbstractAsyncContextManager[None]:
        """Raise `BusUnavailableError` if the connection breaks while the context lasts."""
        return self._connection.awaiting(doing)

    def inbox(self) -> str:
        """Return a subject that only we listen on."""
        return self._client.new_inbox()

    async def flush(self) -> None:
        """Return when the server has seen all that was sent."""
        async with self._connection.awaiting("flush"):
            for _ in range(2):  # nats-py's PING overtakes what still waits to be written: a SUB, say.
                await self._client.flush(timeout=int(PUBLISH_TIMEOUT_S))

    async def provision(self, cluster: str, settings: BusSettings) -> None:
        """Make the streams and buckets of *cluster*, waiting for JetStream; what exists is left as it is.

        Raises:
            PermanentError: one exists and cannot do what it is needed for, or captures what is ours.
        """
        await self._provisions.make(cluster, settings)

    async def provision_again(self) -> None:
        """Make what somebody removed, or a NATS without a disk lost; only log failure."""
        await self._provisions.make_again()

    async def compare_clocks(self) -> None:
        """Compare our clock with the server's every now and then, until cancelled."""
        while True:
            await anyio.sleep(CLOCK_S)
            for cluster in self._provisions.clusters[:1]:
                try:
                    await self.js.stream_info(subjects.fact_stream(cluster))
                except JetStreamRejectedError:
                    # It was removed, and a service that only publishes facts asks for it nowhere else.
                    await self.provision_again()
                except SunkError as error:  # The calls over the connection report it.
                    log.debug("clock not compared", extra={"error": str(error)})

    async def _unsubscribe(self, subscription: Subscription) -> None:
        with anyio.move_on_after(1, shield=True):
            try:
                await subscription.unsubscribe()
            except BROKEN as error:
                if not is_of_the_connection(error):
                    raise
                log.debug("unsubscribe on a closed connection")


@asynccontextmanager
async def connect(settings: BusSettings, name: str) -> AsyncGenerator[Bus]:
    """Connect as *name*, for ever: until NATS is there, and again whenever it went.

    The password is read from its file at each connect, so that one that was changed is taken up.

    Raises:
        ConfigError: the file of the password or of CA certificates cannot be read.
        PermanentError: NATS refuses our user; on the way out, if the connection was closed for good.
    """
    servers = settings.url.split(",")
    credentials = str(settings.credentials_file) if settings.credentials_file else None
    async with connected(
        name,
        servers=servers,
        user=settings.user,
        password=settings.password_reader(),
        credentials=credentials,
        trust=Trust(settings.ca_file) if settings.ca_file else None,
    ) as connection:
        bus = Bus(connection, name, retry_s=settings.retry_s)
        connection.beside(bus.compare_clocks)
        yield bus
