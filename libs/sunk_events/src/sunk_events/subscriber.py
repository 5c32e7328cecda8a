"""Facts of one Slurm cluster for a program of another team, each at least once.

    async def tell(fact: Event) -> None:
        print(fact.time, fact.type, fact.subject)

    subscriber = Subscriber(URL, "prod", user="subscriber-billing", password_file="password")
    asyncio.run(subscriber.run(tell))

What must stay true: a fact is acknowledged only after the handler has returned; of one entity one fact at a
time is handled, in order, also if the handler fails; what a restart repeats and what is remembered is
bounded; no fact is passed over without a word.
"""

import asyncio  # Programs of other teams have no anyio.
import inspect
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from sunk_events import subjects
from sunk_events.base import ClusterName, Event
from sunk_events.catalog import EVENTS
from sunk_events.dead import DeadLetter
from sunk_events.subscription.address import Address
from sunk_events.subscription.errors import RefusedError, SubscriberError, UnreachableError
from sunk_events.subscription.session import Session
from sunk_events.subscription.work import ACK_WAIT_S, Handle, HandleUnreadable, Unreadable, Work
from sunk_events.unknown import UnknownEvent

__all__ = [
    "RefusedError",
    "Subscriber",
    "SubscriberError",
    "UnknownEvent",
    "UnreachableError",
    "Unreadable",
]

log = logging.getLogger(__name__)

PAUSE_S: Final = 10.0
"""Where the wait between two connections stops growing."""


async def _pass_over(message: Unreadable) -> None:
    extra = {"subject": message.on, "number": message.number}
    text = "message %d on %s is skipped, because it cannot be read: %s"
    log.error(text, message.number, message.on, message.reason, extra=extra)


class Subscriber:
    """Reads the facts of one Slurm cluster by a durable consumer."""

    def __init__(
        self,
        url: str,
        cluster: str,
        *,
        user: str,
        password: str = "",
        password_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        kinds: Iterable[type[Event]] = (),
        deliver: Literal["all", "new"] = "all",
        concurrency: int = 1,
        max_ack_pending: int = 100,
        remembered: int = 10_000,
        consumer: str = "",
        connect_within_s: float = 30.0,
        unreadable: HandleUnreadable = _pass_over,
    ) -> None:
        """Describe a subscriber; `run` connects.

        Args:
            url: Of NATS: ``nats://sunk-nats-teams.sunk:4222``; several are separated by commas.
            cluster: The Slurm cluster.
            user: Of NATS: ``subscriber-<team>``.
            password: Of that user.
            password_file: A file with it, read at each connect, instead of *password*.
            ca_file: CA certificates, where NATS speaks TLS and its CA is no public one.
            kinds: Types of facts; by default all facts come, those of unknown types too.
            deliver: Which facts come to a consumer that does not exist yet: all in the stream, or new ones.
            concurrency: Facts that are handled at once, each of another entity.
            max_ack_pending: Facts from the oldest that is not done to the newest that came, at most. So many
                are here, with up to 256 KiB each, and so many come again after a restart.
            remembered: Done facts that are remembered, so that the handler gets each once.
            consumer: Name of the consumer; by default that of the user, which alone a team's user may have.
            connect_within_s: When `run` gives up the very first connection.
            unreadable: Handles messages that are no facts; by default each is logged and passed over.

        Raises:
            ValueError: a value cannot be; names the field.
        """
        self._address = Address(
            url=url,
            user=user,
            password=password,
            password_file=Path(password_file) if password_file else None,
            ca_file=Path(ca_file) if ca_file else None,
        )
        self._cluster = _checked(cluster, "cluster", ClusterName)
        self._consumer = consumer or user
        self._deliver = deliver
        self._filter = _filter(self._cluster, kinds)
        self._concurrency = _checked(concurrency, "concurrency", _Some)
        self._max_ack_pending = _checked(max_ack_pending, "max_ack_pending", _Many)
        self._remembered = _checked(remembered, "remembered", _Some)
        self._connect_within_s = connect_within_s
        self._unreadable = unreadable
        if concurrency > max_ack_pending:
            raise ValueError(f"concurrency {concurrency} is more than max_ack_pending {max_ack_pending}")
        if remembered < max_ack_pending:
            raise ValueError(f"remembered {remembered} is less than max_ack_pending {max_ack_pending}")
        if not user:
            raise ValueError("user must not be empty")
        for one in map(urlsplit, url.split(",")):
            if one.scheme not in {"nats", "tls"} or not one.hostname:
                raise ValueError(
                    f"url {url!r}: must be an address of NATS, such as nats://sunk-nats-teams.sunk:4222"
                )
        if not _NAME.fullmatch(self._consumer):
            raise ValueError(
                f"consumer {self._consumer!r}: NATS accepts letters, digits, - and _, at most 200"
            )

    async def run(self, handle: Handle) -> None:
        """Have *handle* handle each fact, until cancelled.

        A fact is done when *handle* returns. If it raises, the fact is handled again, after a longer pause
        each time. Later facts of the same entity wait for it. Facts of others wait too once
        `max_ack_pending` facts have come since.

        Raises:
            UnreachableError: there was no connection within the first `connect_within_s`.
            RefusedError: NATS refuses us, before facts came for the first time; says what to change.
        """
        for given in (handle, self._unreadable):
            if not inspect.iscoroutinefunction(given):
                raise TypeError(f"{given!r} is not an async function")
        work = Work(self._max_ack_pending, self._remembered, handle, self._unreadable)
        ended: SubscriberError | None = None
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(work.take_turns()) for _ in range(self._concurrency)]
            beside += [tasks.create_task(work.keep()), tasks.create_task(work.watch())]
            try:
                await self._read(work)
            except SubscriberError as error:
                ended = error
            finally:
                for task in beside:
                    task.cancel()
        if ended is not None:
            raise ended

    async def _read(self, work: "Work") -> None:
        """Read by one connection after the other."""
        clock = asyncio.get_running_loop().time
        pause_s, began, was_there = 0.5, clock(), False
        while True:
            connecting = clock()
            work.begin(session := Session(self._address, self._cluster, self._consumer))
            try:
                await session.open()
                await self._consume(session, work)
                was_there = True
                await session.begin()
                while True:
                    await work.take_in(await session.deliveries(work.room))
            except UnreachableError as error:
                if not was_there and clock() - began > self._connect_within_s:
                    raise UnreachableError(
                        f"{error}. Check url; in Kubernetes also networkPolicy.subscribersFrom of helm/sunk"
                    ) from error
                log.warning("subscriber connects again: %s", error)
            except RefusedError as error:
                if not was_there:
                    raise
                log.error("NATS refuses the subscriber, which continues to try: %s", error)  # noqa: TRY400 - no bug, no traceback
            finally:
                await session.close()
            pause_s = 0.5 if clock() - connecting > PAUSE_S else min(pause_s * 2, PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _consume(self, session: Session, work: "Work") -> None:
        """Find or make the consumer, and note what the next one begins with if this one is removed."""
        settings: dict[str, object] = {
            "ack_wait": ACK_WAIT_S * 1_000_000_000,
            "max_deliver": -1,
            "max_ack_pending": self._max_ack_pending,
        }
        if self._filter:
            settings["filter_subjects"] = self._filter
        new: dict[str, object] = {"deliver_policy": self._deliver}
        if since := work.since:
            new = {"deliver_policy": "by_start_time", "opt_start_time": since}
        made, is_new = await session.consume(new, settings)
        if is_new and since:
            log.warning("consumer %s was removed, and continues with messages from %s", self._consumer, since)
        if self._deliver == "new":
            work.begun = work.begun or made


_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_Some = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Many = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


def _checked(value: Any, field: str, kind: Any) -> Any:  # noqa: ANN401 - as the type says
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{field} {value!r}: {error}") from error


def _filter(cluster: str, kinds: Iterable[type[Event]]) -> list[str]:
    wanted = tuple(dict.fromkeys(kinds))
    if wrong := [kind.__name__ for kind in wanted if kind not in EVENTS or kind is DeadLetter]:
        raise ValueError(
            f"kinds: {', '.join(wrong)} are not in a stream of facts; docs/events.md lists the facts"
        )
    return [subjects.facts(cluster, kind) for kind in wanted]
