# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
"""The connection to NATS, its streams and buckets; the only import of nats-py.

What must stay true: it reconnects for ever; a publish is acknowledged or raises; a message larger than
the contract allows never reaches the server (it would close the connection for good).

Source: nats-py 2.16; NATS ADR-8 (buckets), ADR-37 (pull consumers), ADR-43 (message TTL).
"""

import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, BadRequestError, NotFoundError
from nats.js.errors import Error as JetStreamError

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.catalog import STATES
from sunk_events.codec import MAX_BYTES, OversizeError
from sunk_runtime.errors import BusUnavailableError, ConflictError, NoAnswerError, PermanentError, SunkError
from sunk_runtime.tracing import outgoing

log = logging.getLogger(__name__)

RECONNECT_S: Final = 0.25
PUBLISH_TIMEOUT_S: Final = 5.0
MARKER_TTL_S: Final = 3600
"""How long a deleted key leaves its marker. A view that was away for longer reads the bucket anew anyway."""
DEDUPE_S: Final = 600
_WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
_NAME_IN_USE: Final = 10058


class BusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where NATS is and who we are there."""

    url: str = "nats://127.0.0.1:4222"
    user: str = ""
    password_file: Path | None = None
    replicas: int = 1
    facts_max_bytes: int = 1 << 30
    facts_max_age_s: int = 7 * 86400


class Message(msgspec.Struct, frozen=True):
    """A message as it came: subject, payload, headers, and where an answer goes."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    reply: str


class Bus:
    """One connection. Make it with `connect`."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._js = client.jetstream(timeout=PUBLISH_TIMEOUT_S)
        self.name = name
        self.publish_timeout_s = PUBLISH_TIMEOUT_S
        """How long a publish waits for its acknowledgement."""
        self._provided: dict[str, BusSettings] = {}
        self.last_error = ""
        """What the server said last; a denied publish is only a time-out to its caller."""
        self.reconnects = 0
        """How often the connection came back; a reader that sees it move reads anew."""

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands now."""
        return self._client.is_connected

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        msg_id: str | None = None,
        expected_revision: int | None = None,
        ttl_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Store *data* and return its stream sequence; with *msg_id*, twice is once.

        Args:
            subject: A subject of a stream, from `sunk_events.subjects`.
            data: The payload.
            msg_id: ``Nats-Msg-Id``, for the stream's duplicate window.
            expected_revision: Refuse unless the subject's last sequence is this; 0 means no message yet.
            ttl_s: Whole seconds after which the server drops the message and leaves a marker.
            headers: More headers.

        Raises:
            OversizeError: *data* is larger than the contract allows.
            ConflictError: *expected_revision* does not hold.
            BusUnavailableError: no acknowledgement came; the message may have been stored all the same.
        """
        if len(data) > MAX_BYTES:
            raise OversizeError(f"{subject}: {len(data)} bytes, at most {MAX_BYTES} are allowed")
        sent = {**outgoing(msg_id), **(headers or {})}
        if expected_revision is not None:
            sent["Nats-Expected-Last-Subject-Sequence"] = str(expected_revision)
        if ttl_s is not None:
            sent["Nats-TTL"] = f"{ttl_s}s"
        async with self._translated(f"publish on {subject}"):
            ack = await self._js.publish(subject, data, headers=sent, timeout=self.publish_timeout_s)
        return ack.seq

    async def last(self, stream: str, subject: str) -> tuple[int, Message] | None:
        """Return the last message on *subject* with its sequence, read from the stream's leader."""
        async with self._translated(f"read {subject}"):
            try:
                found = await self._js.get_last_msg(stream, subject, direct=False)
            except NotFoundError:
                return None
        sequence = found.seq or 0
        return sequence, Message(found.subject or subject, found.data or b"", found.headers or {}, "")

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Message:
        """Ask on *subject*.

        Raises:
            NoAnswerError: nobody listens, or nobody answered in time.
            BusUnavailableError: the connection is down.
        """
        try:
            async with self._translated(f"ask {subject}"):
                answer = await self._client.request(subject, data, timeout=timeout_s, headers=outgoing())
        except NoRespondersError as error:
            raise NoAnswerError(f"ask {subject}: nobody answers it now", retry_after_s=0.2) from error
        except BusUnavailableError as error:
            if self.is_connected:
                raise NoAnswerError(f"ask {subject}: no answer in {timeout_s:.1f} s{self._hint()}") from error
            raise
        return _message(answer)

    async def send(self, subject: str, data: bytes, *, reply: str = "") -> None:
        """Send without storing or acknowledgement: an answer, a pull, a nudge."""
        async with self._translated(f"send to {subject}"):
            await self._client.publish(subject, data, reply=reply, headers=outgoing())

    @asynccontextmanager
    async def subscribed(
        self, subject: str, receive: Callable[[Message], Awaitable[None]]
    ) -> AsyncGenerator[None]:
        """Call *receive* for each message on *subject*, one after the other, while the context lasts."""

        async def deliver(message: Msg) -> None:
            await receive(_message(message))

        async with self._translated(f"subscribe to {subject}"):
            subscription = await self._client.subscribe(
                subject, cb=deliver, pending_bytes_limit=0, pending_msgs_limit=0
            )
        try:
            yield
        finally:
            await self._unsubscribe(subscription)

    def inbox(self) -> str:
        """Return a subject that only we listen on."""
        return self._client.new_inbox()

    async def flush(self) -> None:
        """Return when the server has seen all that was sent."""
        async with self._translated("flush"):
            await self._client.flush(timeout=int(PUBLISH_TIMEOUT_S))

    async def api(self, subject: str, body: object) -> dict[str, Any]:
        """Call JetStream's own API, whose answers are JSON objects.

        Raises:
            NoAnswerError, BusUnavailableError: as `request`.
            PermanentError: JetStream refused; the text is its own.
        """
        answer = await self.request(f"$JS.API.{subject}", msgspec.json.encode(body), PUBLISH_TIMEOUT_S)
        content = msgspec.json.decode(answer.data, type=dict[str, Any])
        if error := content.get("error"):
            raise PermanentError(f"JetStream {subject}: {error.get('description')} ({error.get('err_code')})")
        return content

    async def provision(self, cluster: str, settings: BusSettings) -> None:
        """Make the streams and buckets of *cluster*; what exists already is left as it is.

        Raises:
            PermanentError: a stream of that name exists and captures other subjects. It is never deleted.
        """
        self._provided[cluster] = settings
        for config in stream_configs(cluster, settings):
            await self._provide(config)

    async def provision_again(self) -> None:
        """Make what we made once and somebody removed, or a NATS without a disk lost; only log failure."""
        for cluster, settings in self._provided.items():
            try:
                await self.provision(cluster, settings)
            except SunkError as error:
                log.warning("streams not made", extra={"cluster": cluster, "error": str(error)})

    async def _provide(self, config: StreamConfig) -> None:
        async with self._translated(f"make stream {config.name}"):
            try:
                await self._js.add_stream(config)
            except BadRequestError as error:
                if error.err_code != _NAME_IN_USE:
                    raise  # Another stream captures our subjects: the server's words say so.
                # It exists with other settings: compatible or not?
                info = await self._js.stream_info(config.name or "")
                if sorted(info.config.subjects or ()) != sorted(config.subjects or ()):
                    raise PermanentError(
                        f"stream {config.name} exists with subjects {info.config.subjects}, "
                        f"needed are {config.subjects}: rename or remove it"
                    ) from None
                log.warning("stream has other settings", extra={"stream": config.name})

    @asynccontextmanager
    async def _translated(self, doing: str) -> AsyncGenerator[None]:
        """Raise our errors for nats-py's; the original stays as ``__cause__``."""
        try:
            yield
        except NoRespondersError:
            raise
        except APIError as error:
            if error.err_code in _WRONG_LAST_SEQUENCE:
                raise ConflictError(f"{doing}: {error.description}") from error
            if error.code is not None and error.code < 500:  # noqa: PLR2004 - an HTTP-like status
                raise PermanentError(f"{doing}: {error.description} ({error.err_code})") from error
            raise BusUnavailableError(f"{doing}: {error.description}") from error
        except (NatsError, JetStreamError, OSError, TimeoutError) as error:
            raise BusUnavailableError(f"{doing}: {type(error).__name__}{self._hint()}") from error

    def _hint(self) -> str:
        return f" ({self.last_error})" if self.last_error else ""

    async def _unsubscribe(self, subscription: Subscription) -> None:
        with anyio.move_on_after(1, shield=True):
            try:
                await subscription.unsubscribe()
            except NatsError:
                log.debug("unsubscribe on a closed connection")


def _message(message: Msg) -> Message:
    return Message(message.subject, message.data, message.headers or {}, message.reply)


def stream_configs(cluster: str, settings: BusSettings) -> list[StreamConfig]:
    """Return every stream that *cluster* needs, the buckets' included."""
    common: dict[str, Any] = {
        "storage": StorageType.FILE,
        "num_replicas": settings.replicas,
        "allow_msg_ttl": True,
    }
    facts = StreamConfig(
        name=subjects.fact_stream(cluster),
        subjects=[subjects.facts(cluster)],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_age=settings.facts_max_age_s,
        max_bytes=settings.facts_max_bytes,
        max_msgs_per_subject=1000,  # A flapping node must not push out what the others did.
        duplicate_window=DEDUPE_S,
        **common,
    )
    dead = StreamConfig(
        name=subjects.DEAD_LETTER_STREAM,
        subjects=[subjects.DEAD_LETTERS],
        max_age=30 * 86400,
        max_bytes=settings.facts_max_bytes // 4,
        duplicate_window=DEDUPE_S,
        **common,
    )
    names = [*(subjects.bucket(cluster, kind) for kind in STATES), subjects.lease_bucket(cluster)]
    return [facts, dead, *(_bucket_config(name, common) for name in names)]


def _bucket_config(bucket: str, common: Mapping[str, Any]) -> StreamConfig:
    """Return the stream of a bucket, with the settings that NATS' own clients give it (ADR-8)."""
    return StreamConfig(
        name=subjects.bucket_stream(bucket),
        subjects=[subjects.bucket_keys(bucket)],
        max_msgs_per_subject=1,
        discard=DiscardPolicy.NEW,
        deny_delete=True,
        allow_rollup_hdrs=True,
        allow_direct=False,  # Reads come from the leader: a replica may be behind.
        subject_delete_marker_ttl=MARKER_TTL_S,
        duplicate_window=120,
        **common,
    )


def state_bucket(cluster: str, kind: type[State]) -> str:
    """Return the bucket of *kind*; here so that callers of views need no subject."""
    return subjects.bucket(cluster, kind)


@asynccontextmanager
async def connect(settings: BusSettings, name: str) -> AsyncGenerator[Bus]:
    """Connect as *name*, for ever: until NATS is there, and again whenever it went.

    Raises:
        PermanentError: NATS refuses our user; on the way out, if the connection was closed for good.
    """
    holder: list[Bus] = []
    closed = anyio.Event()
    is_leaving = False

    async def on_error(error: Exception) -> None:
        if holder:
            holder[0].last_error = str(error)
        elif "authorization" in str(error).lower():
            raise PermanentError(f"NATS refuses user {settings.user!r}: {error}")
        log.warning("bus error", extra={"error": str(error) or type(error).__name__})

    async def on_disconnect() -> None:
        if not is_leaving:
            log.warning("bus disconnected")

    async def on_reconnect() -> None:
        if holder:
            holder[0].last_error = ""
            holder[0].reconnects += 1
        log.info("bus reconnected")

    async def on_close() -> None:
        closed.set()

    password = settings.password_file.read_text().strip() if settings.password_file else None
    options: dict[str, Any] = {
        "servers": settings.url.split(","),
        "name": name,
        "error_cb": on_error,
        "disconnected_cb": on_disconnect,
        "reconnected_cb": on_reconnect,
        "closed_cb": on_close,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": RECONNECT_S * random.uniform(0.8, 1.2),  # noqa: S311 - spreads a fleet, no secret
        "connect_timeout": 2,
        "ping_interval": 10,
        "max_outstanding_pings": 2,
        "inbox_prefix": f"_INBOX.{name}".encode(),
        "user": settings.user or None,
        "password": password,
    }
    client = Client()
    try:
        await client.connect(**options)
    except BaseException:
        with anyio.move_on_after(2, shield=True):
            await client.close()
        raise
    bus = Bus(client, name)
    holder.append(bus)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_fail_when_closed, closed)
        try:
            yield bus
        finally:
            is_leaving = True
            tasks.cancel_scope.cancel()
            with anyio.move_on_after(2, shield=True):
                await client.close()


async def _fail_when_closed(closed: anyio.Event) -> None:
    """End the process when nats-py gave up for good: the platform starts it anew."""
    await closed.wait()
    raise PermanentError("the connection to NATS was closed for good")
