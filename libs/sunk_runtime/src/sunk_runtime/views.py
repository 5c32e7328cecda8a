# pyright: reportUnknownMemberType=false
"""StateView: a whole bucket, then what changes.

What must stay true: a view says when it is complete, and until then nobody may conclude that a key is
absent; it is complete only when it has read all that the bucket's leader had when the read began, as the
replica that it reads may lag; after any gap it reads the whole bucket again, and then believes the bucket,
whatever it knew before: a bucket can go back, to an older copy of NATS' store, or be purged. What is older
than what was known is believed only with the whole read, and the view is not complete while such keys are in
doubt (`BucketCopy`); the view of the bucket's owner is complete at once, and a loop that decides on it
without writing it asks that it be *settled*.
"""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import anyio
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo, StreamState

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.codec import UndecodableError, decode_state
from sunk_runtime.bucket_copy import BucketCopy
from sunk_runtime.bucket_read import Found, WholeRead
from sunk_runtime.clock import now
from sunk_runtime.dead import publish_dead_letter
from sunk_runtime.errors import BusUnavailableError, JetStreamRejectedError, SunkError, TransientError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.metrics import VIEW_AGE, VIEW_KEYS, VIEW_READS
from sunk_runtime.pull import create_consumer, pulling
from sunk_runtime.repeated import first_answer
from sunk_runtime.streams import MARKER_TTL_S

log = logging.getLogger(__name__)

S = TypeVar("S", bound=State)

_CONSUMER: Final = ConsumerConfig(
    deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
    ack_policy=AckPolicy.NONE,
    mem_storage=True,
    num_replicas=1,
    inactive_threshold=30,
)

CHECK_S: Final = 30.0
"""How often a view asks whether its bucket still holds what it held: nobody is told of a purge."""
CHECK_TIMEOUT_S: Final = 1.0
MARKERS_S: Final = 2.0 * MARKER_TTL_S
"""So long after its end a key is remembered, longer than its marker lasts: of all jobs ever are many."""


class StateView(BucketCopy[S]):
    """All states of one kind of one cluster, kept current by `run`."""

    def __init__(self, bus: Bus, cluster: str, kind: type[S]) -> None:
        super().__init__(subjects.bucket(cluster, kind))
        self.kind = kind
        self.cluster: Final = cluster
        self._bus = bus
        self._stream = subjects.bucket_stream(self.bucket)
        self._last_contact = time.monotonic()
        self._created = ""
        """When the bucket was made: a newer one counts its revisions from 1 again."""
        self._written_since = float("inf")
        """Since when the bucket was written to, as far as we know; infinite while it never was."""
        self._newest = float("-inf")
        """When the newest message was stored."""
        self._stored_s = 0.0
        """The same on the server's clock, as far as the bucket was read as a whole and followed."""
        self._followed = 0
        """The last message that we know the bucket was given."""
        self._awaited = 0
        """The last one that it was given by the check before: by the next one it has come, or is gone."""
        self._reading: WholeRead[S] | None = None

    @property
    def created(self) -> str:
        """When the bucket was made, in the server's words; another one has lost what the first one held."""
        return self._created

    @property
    def written_for_s(self) -> float:
        """Seconds since when its owner writes to the bucket; minus infinity where nobody ever did.

        While that is not long, a key that is not here proves nothing: the bucket may have been lost.
        """
        return time.monotonic() - self._written_since

    @property
    def newest_age_s(self) -> float:
        """Seconds since the bucket was written to last, on the server's clock; infinite: it never was."""
        return time.monotonic() - self._newest

    @property
    def age_s(self) -> float:
        """Seconds since the server gave a sign of life; more than a few mean that this may be stale."""
        return time.monotonic() - self._last_contact

    async def run(self) -> None:
        """Read, follow, and read again after each gap, until cancelled."""
        VIEW_AGE.labels(self.bucket).set_function(lambda: self.age_s)
        VIEW_KEYS.labels(self.bucket).set_function(lambda: len(self._entries))
        while True:
            try:
                await self._read()
            except TransientError as error:
                log.warning("view reads again", extra={"bucket": self.bucket, "error": str(error)})
            except SunkError as error:
                log.error("view has no bucket", extra={"bucket": self.bucket, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
                await self._bus.provision_again()
            self._reading = None
            self._set_complete(is_complete=False)
            await anyio.sleep(0.3)

    async def _read(self) -> None:
        VIEW_READS.labels(self.bucket).inc()
        before = dict(self._revisions)
        info, last, consumer, pending = await first_answer(self._open)
        await self._note_bucket(info)
        self._reading = WholeRead(
            last[0] if last else 0,
            pending,
            before,
            followed=self._followed,
            last=info.state.last_seq,
            stored_s=self._stored_s,
        )
        await self._follow(consumer)

    async def _open(self) -> tuple[StreamInfo, tuple[int, Message] | None, str, int]:
        """Return what the server says of the bucket, its last message, a consumer, and what that has."""
        info, keys = await self._bus.js.stream_info(self._stream), subjects.bucket_keys(self.bucket)
        last = await self._bus.last(self._stream, keys)
        made = await create_consumer(self._bus, self._stream, _CONSUMER.evolve(filter_subject=keys))
        return info, last, *made

    async def _note_bucket(self, info: StreamInfo) -> None:
        """Take what the server says of the bucket as a whole; also a key that is gone was written once.

        A bucket may have been made long before its owner came to write it: its oldest message tells. Where
        all are gone even their markers are, so it was written long ago.
        """
        created, before = str(info.created), self._created
        if not info.state.last_seq:
            self._written_since = float("inf")
        elif not before:
            oldest = await self._oldest(info.state) or info.created or now()
            ours = timedelta(seconds=self._bus.clock.skew_s)
            self._written_since = time.monotonic() - max(0.0, (now() + ours - oldest).total_seconds())
        elif created != before or self._written_since == float("inf"):
            self._written_since = time.monotonic()
        self._created = created

    async def _oldest(self, state: StreamState) -> datetime | None:
        """Return when the oldest message was stored: nats-py drops what the server says of it."""
        if not state.messages:
            return None
        try:
            return (await self._bus.js.get_msg(self._stream, seq=state.first_seq)).time
        except JetStreamRejectedError as error:
            raise BusUnavailableError("the oldest message has gone meanwhile") from error

    def _note_stored(self, at: Msg.Metadata) -> None:
        moment = time.monotonic()
        self._written_since = min(self._written_since, moment)
        age_s = time.time() + self._bus.clock.skew_s - at.timestamp.timestamp()
        stored = moment - max(0.0, age_s)
        self._newest = max(self._newest, stored)
        if self._reading is None:
            self._stored_s = max(self._stored_s, at.timestamp.timestamp())
        else:
            self._reading.newest = max(self._reading.newest, stored)

    async def _follow(self, consumer: str) -> None:
        """Take over what *consumer* delivers, at first the whole bucket."""
        expected, reached, checked = 1, 0, time.monotonic()
        async with pulling(self._bus, self._stream, consumer) as pull:
            while True:
                if self._reading is not None and self._reading.is_over:
                    self._finish(self._reading)
                self._believe()
                batch = await pull.batch()
                self._last_contact = time.monotonic()
                if self._reading is not None:
                    self._reading.note_heartbeat(is_idle=not batch)
                for message in batch:
                    at, revision = message.metadata, message.metadata.sequence.stream
                    if at.sequence.consumer != expected:
                        raise BusUnavailableError(f"delivery {expected} was missed")
                    if revision <= reached:
                        raise BusUnavailableError(f"the bucket went back from {reached} to {revision}")
                    expected, reached = expected + 1, revision
                    self._note_stored(at)
                    key = await self._take(message, at)
                    if self._reading is not None:
                        self._reading.took(key, at)
                    else:
                        self._followed = revision
                if self._reading is None and time.monotonic() - checked > CHECK_S:
                    await self._check()
                    self._forget_gone(self._stored_s - MARKERS_S)
                    checked = time.monotonic()

    async def _check(self) -> None:
        """Raise `BusUnavailableError` if another client emptied the bucket; no answer is no news."""
        state: StreamState | None = None
        with anyio.move_on_after(CHECK_TIMEOUT_S), suppress(SunkError):
            state = (await self._bus.js.stream_info(self._stream)).state
        if state is not None:
            self._require_held(state)

    def _require_held(self, state: StreamState) -> None:
        last = state.last_seq
        if last > max(self._followed, self._awaited):
            self._awaited = last
            return  # What is still to come may be in place of what we know.
        held = [revision for key in self._entries if (revision := self._revisions[key]) <= last]
        if len(held) > state.messages or min(held, default=state.first_seq) < state.first_seq:
            raise BusUnavailableError("another client removed the content of the bucket")

    def _finish(self, reading: WholeRead[S]) -> None:
        """End a whole read: what went back is in doubt."""
        self._reading = None
        self._followed, self._awaited = reading.last, 0
        self._stored_s = max(self._stored_s, reading.newest_s)
        went_back = self._take_over(reading)
        if went_back:
            if reading.keys:
                self._newest = reading.newest
            self._doubt(went_back)
            log.warning("bucket went back", extra={"bucket": self.bucket, "keys": len(went_back)})

    def _believe(self) -> None:
        """Be complete once the bucket is read and none of it is in doubt."""
        if self._reading is not None or self.is_complete:
            return
        if not self._is_in_doubt:
            self._doubtful.clear()
        if self._is_ours or not self._doubtful:
            self._set_complete(is_complete=True)

    async def _take(self, message: Message, at: Msg.Metadata) -> str:
        """Take over what came, and return its key."""
        try:
            key = subjects.key_of(self.bucket, message.subject)
        except ValueError:
            await self._reject(message, at, "the key is not UTF-8")
            return message.subject
        found, reason = self._read_value(message, at)
        if self._is_news(key, found):
            self._believe_of(key, found)
        if reason:
            await self._reject(message, at, reason)
        return key

    def _read_value(self, message: Message, at: Msg.Metadata) -> tuple[Found[S], str]:
        """Return what *message* says, and why it cannot be read if it cannot."""
        revision, stored_s = at.sequence.stream, at.timestamp.timestamp()
        trace = message.headers.get("traceparent", "")
        if "Nats-Marker-Reason" in message.headers or message.headers.get("KV-Operation") in {"DEL", "PURGE"}:
            return Found(None, revision, now(), stored_s, trace=trace), ""
        stored = at.timestamp - timedelta(seconds=self._bus.clock.skew_s)
        try:
            value = decode_state(self.kind, message.data)
            return Found(value, revision, stored, stored_s, trace=trace), ""
        except UndecodableError as error:
            return Found(None, revision, stored, stored_s, is_readable=False), str(error)

    async def _reject(self, message: Message, at: Msg.Metadata, reason: str) -> None:
        msg_id = f"{self.bucket}:{at.sequence.stream}"
        await publish_dead_letter(self._bus, self.cluster, message, f"{self.bucket}: {reason}", msg_id=msg_id)

    def _is_news(self, key: str, found: Found[S]) -> bool:
        """Whether what the bucket says of *key* is to be believed now.

        What is not newer is our own write, delivered again; or an older one, overtaken by it.
        """
        known, reading = self._revisions.get(key, 0), self._reading
        if reading is None or known != reading.before.get(key, 0):
            if found.revision == known:
                self._stored_s_of[key] = found.stored_s
            return found.revision > known
        return reading.is_news(key, found, known=known, stored_s=self._stored_s_of.get(key))


@asynccontextmanager
async def following(*views: StateView[Any]) -> AsyncGenerator[None]:
    """Run *views* while the context lasts."""
    async with anyio.create_task_group() as tasks:
        for view in views:
            tasks.start_soon(view.run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
