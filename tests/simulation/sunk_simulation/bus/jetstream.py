"""JetStream's API over a store: what is asked on ``$JS.API.>``, and what is published to streams."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, Protocol

import msgspec

from sunk_simulation.bus.consumer import Consumer, Wire
from sunk_simulation.bus.interest import overlap
from sunk_simulation.bus.store import Store
from sunk_simulation.bus.stream import RefusedError, Stream, settled

API: Final = "$JS.API."
ACK: Final = "$JS.ACK."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER: Final = "0001-01-01T00:00:00Z"
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAGE: Final = 1024
_NO_STREAM: Final = (404, 10059, "stream not found")
_NO_CONSUMER: Final = (404, 10014, "consumer not found")
_NO_MESSAGE: Final = (404, 10037, "no message found")
_METADATA: Final = {"_nats.level": "5", "_nats.req.level": "1", "_nats.ver": "2.15.1"}
_SINGLE: Final = 1


class Told(Protocol):
    """Who wants to know what is stored."""

    def __call__(self, what: str, **more: object) -> None:
        """Take note."""
        ...


def rfc3339(ns: int) -> str:
    """Return a time as Go writes it."""
    if not ns:
        return _NEVER
    seconds, rest = divmod(ns, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
    fraction = f"{rest:09d}".rstrip("0")
    return f"{text}.{fraction}Z" if fraction else f"{text}Z"


class JetStream:
    """Serves a store, for as long as a process does."""

    def __init__(
        self,
        store: Store,
        wire: Wire,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int],
        random: Random,
        told: Told,
        max_store: int | None = None,
        servers: int = 1,
    ) -> None:
        self.store: Final = store
        self._wire: Final = wire
        self._loop: Final = loop
        self._now_ns: Final = now_ns
        self._random: Final = random
        self._told: Final = told
        self._max_store: Final = max_store
        self._servers: Final = servers
        self._timers: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self.lagging: dict[str, int] = {}
        """Streams of which consumers that are made now read a replica, and what is its last message."""
        self.leaderless: set[str] = set()
        """Streams for whose publishes nobody answers now."""
        for name, stream in list(store.streams.items()):
            self._serve(name, stream)

    def captures(self, subject: str) -> Stream | None:
        """Return the stream that stores what is published on *subject*."""
        for stream in self.store.streams.values():
            if stream.takes(subject):
                return stream
        return None

    def publish(self, stream: Stream, subject: str, raw: bytes, data: bytes) -> bytes:
        """Store a message and return what its publisher is told."""
        now_ns = self._now_ns()
        stream.expire(now_ns)
        free = None if self._max_store is None else self._max_store - self.store.size
        try:
            seq, was_there = stream.store(subject, raw, data, now_ns, free=free)
        except RefusedError as error:
            return msgspec.json.encode({"error": error.answer, "stream": stream.name, "seq": 0})
        if not was_there:
            self._told("stores", stream=stream.name, seq=seq, subject=subject)
            self.go_on(stream)
        ack: dict[str, Any] = {"stream": stream.name, "seq": seq}
        if was_there:
            ack["duplicate"] = True
        return msgspec.json.encode(ack)

    def acknowledge(self, subject: str, words: bytes) -> None:
        """Take an acknowledgement of a delivery."""
        tokens = subject.split(".")
        if len(tokens) > 9:
            tokens = tokens[2:]
        consumer = self.store.consumers.get(tokens[2], {}).get(tokens[3])
        if consumer is not None:
            consumer.acknowledge(int(tokens[5]), words, self._now_ns())
            self._work(consumer)

    def call(self, subject: str, reply: str, data: bytes) -> bytes | None:
        """Answer a call of the API; None: nobody does."""
        verb = subject.removeprefix(API)
        if verb.startswith("CONSUMER.MSG.NEXT."):
            return self._next(verb.removeprefix("CONSUMER.MSG.NEXT."), reply, data)
        for prefix, kind, call in self._calls():
            if verb == prefix or (prefix.endswith(".") and verb.startswith(prefix)):
                return self._answer(kind, call, verb.removeprefix(prefix), data)
        return None

    def go_on(self, stream: Stream) -> None:
        """Deliver what is new in *stream*, and look again when something of it ends."""
        for consumer in self.store.consumers[stream.name].values():
            if consumer.asks:
                self._work(consumer)
        self._at(stream, stream.next_end_ns(), self._expire, stream)

    def catch_up(self, stream: str) -> None:
        """Let every replica of *stream* be where its leader is."""
        self.lagging.pop(stream, None)
        for consumer in self.store.consumers.get(stream, {}).values():
            if consumer.behind is not None:
                consumer.behind = None
                consumer.recount()
                self._work(consumer)

    def stop(self) -> None:
        """Serve it no more."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _serve(self, name: str, stream: Stream) -> None:
        consumers = self.store.consumers.setdefault(name, {})
        for one, consumer in list(consumers.items()):
            if consumer.config.get("mem_storage"):
                del consumers[one]
                stream.readers.pop(one, None)
                continue
            consumer.wire = self._wire
            consumer.asks.clear()
            consumer.active_ns = self._now_ns()
            self._watch(consumer)
        stream.expire(self._now_ns())
        self.go_on(stream)

    def _calls(self) -> tuple[tuple[str, str, Callable[[str, dict[str, Any]], dict[str, Any]]], ...]:
        return (
            ("INFO", "account_info", self._account),
            ("STREAM.INFO.", "stream_info", self._stream_info),
            ("STREAM.MSG.GET.", "stream_msg_get", self._get),
            ("STREAM.MSG.DELETE.", "stream_msg_delete", self._delete_message),
            ("STREAM.CREATE.", "stream_create", self._create),
            ("STREAM.UPDATE.", "stream_update", self._update),
            ("STREAM.DELETE.", "stream_delete", self._delete),
            ("STREAM.PURGE.", "stream_purge", self._purge),
            ("STREAM.NAMES", "stream_names", self._names),
            ("STREAM.LIST", "stream_list", self._list),
            ("CONSUMER.DURABLE.CREATE.", "consumer_create", self._create_durable),
            ("CONSUMER.CREATE.", "consumer_create", self._create_consumer),
            ("CONSUMER.RESET.", "consumer_reset", self._reset),
            ("CONSUMER.INFO.", "consumer_info", self._consumer_info),
            ("CONSUMER.DELETE.", "consumer_delete", self._delete_consumer),
            ("CONSUMER.NAMES.", "consumer_names", self._consumer_names),
            ("CONSUMER.LIST.", "consumer_list", self._consumer_list),
        )

    def _answer(
        self, kind: str, call: Callable[[str, dict[str, Any]], dict[str, Any]], rest: str, data: bytes
    ) -> bytes:
        said: dict[str, Any] = {"type": f"io.nats.jetstream.api.v1.{kind}_response"}
        try:
            body = msgspec.json.decode(data or b"{}", type=dict[str, Any])
            said |= call(rest, body)
        except msgspec.DecodeError:
            said["error"] = RefusedError(400, 10025, "invalid JSON").answer
        except RefusedError as error:
            said["error"] = error.answer
        return msgspec.json.encode(said)

    def _stream(self, name: str) -> Stream:
        stream = self.store.streams.get(name)
        if stream is None:
            raise RefusedError(*_NO_STREAM)
        stream.expire(self._now_ns())
        return stream

    def _consumer(self, rest: str) -> Consumer:
        stream, _, name = rest.partition(".")
        self._stream(stream)
        consumer = self.store.consumers[stream].get(name)
        if consumer is None:
            raise RefusedError(*_NO_CONSUMER)
        return consumer

    def _now(self) -> str:
        return rfc3339(self._now_ns())

    def _account(self, _: str, __: Mapping[str, Any]) -> dict[str, Any]:
        limits = {"max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": -1}
        consumers = sum(map(len, self.store.consumers.values()))
        streams = len(self.store.streams)
        return {"memory": 0, "storage": self.store.size, "streams": streams, "consumers": consumers} | {
            "limits": limits,
            "api": {"level": 5, "total": 0, "errors": 0},
        }

    def _described(self, stream: Stream, *, subjects: str = "") -> dict[str, Any]:
        state = stream.state(rfc3339, subjects=subjects)
        state["consumer_count"] = len(self.store.consumers[stream.name])
        config = {**stream.config, "metadata": _METADATA}
        return {"config": config, "created": rfc3339(stream.created_ns), "state": state, "ts": self._now()}

    def _stream_info(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._stream(name)
        return {"total": 0, "offset": 0, "limit": 0} | self._described(
            stream, subjects=str(body.get("subjects_filter") or "")
        )

    def _create(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("name") != name:
            raise RefusedError(400, 10056, "stream name in subject does not match request")
        config = settled(body)
        if (found := self.store.streams.get(name)) is not None:
            if found.config != config:
                raise RefusedError(400, 10058, "stream name already in use with a different configuration")
            return self._described(found) | {"did_create": True}
        self._check(config)
        stream = self.store.streams[name] = Stream(config, self._now_ns())
        self.store.consumers[name] = {}
        self._told("makes stream", stream=name)
        return self._described(stream) | {"did_create": True}

    def _check(self, config: Mapping[str, Any]) -> None:
        if config["num_replicas"] > self._servers:
            if self._servers == _SINGLE:
                raise RefusedError(500, 10074, "replicas > 1 not supported in non-clustered mode")
            raise RefusedError(400, 10005, "no suitable peers for placement")
        for other in self.store.streams.values():
            if other.name != config["name"] and any(
                overlap(one, theirs) for one in config["subjects"] for theirs in other.config["subjects"]
            ):
                raise RefusedError(400, 10065, "subjects overlap with an existing stream")

    def _update(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        stream = self._stream(name)
        config = settled({**body, "name": name})
        self._check(config)
        for fixed in ("retention", "storage"):
            if config[fixed] != stream.config[fixed]:
                raise RefusedError(500, 10052, f"stream configuration update can not change {fixed}")
        stream.config = config
        stream.trim()
        self.go_on(stream)
        return self._described(stream)

    def _delete(self, name: str, _: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._stream(name)
        for consumer in list(self.store.consumers[name].values()):
            self._end(consumer)
        del self.store.streams[name], self.store.consumers[name]
        self._at(stream, None, self._expire, stream)
        self._told("deletes stream", stream=name)
        return {"success": True}

    def _purge(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._stream(name)
        if stream.config["deny_purge"]:
            raise RefusedError(500, 10110, "stream purge not permitted")
        purged = stream.purge(
            str(body.get("filter") or ""), below=int(body.get("seq") or 0), keep=int(body.get("keep") or 0)
        )
        self._told("purges stream", stream=name, purged=purged)
        return {"success": True, "purged": purged}

    def _get(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._stream(name)
        if last := body.get("last_by_subj"):
            message = stream.last_on(last)
        elif following := body.get("next_by_subj"):
            message = stream.next_on(following, int(body.get("seq") or 0))
        else:
            message = stream.messages.get(int(body.get("seq") or 0))
        if message is None:
            raise RefusedError(*_NO_MESSAGE)
        said: dict[str, Any] = {"subject": message.subject, "seq": message.seq}
        if message.headers:
            said["hdrs"] = base64.b64encode(message.headers).decode()
        if message.data:
            said["data"] = base64.b64encode(message.data).decode()
        return {"message": said | {"time": rfc3339(message.stored_ns)}}

    def _delete_message(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._stream(name)
        if stream.config["deny_delete"]:
            raise RefusedError(500, 10109, "message delete not permitted")
        if not stream.delete(int(body.get("seq") or 0)):
            raise RefusedError(400, 10043, "no message found")
        return {"success": True}

    def _names(self, _: str, body: Mapping[str, Any]) -> dict[str, Any]:
        wanted = body.get("subject")
        names = [
            name
            for name, stream in sorted(self.store.streams.items())
            if not wanted or any(overlap(one, wanted) for one in stream.config["subjects"])
        ]
        return {"total": len(names), "offset": 0, "limit": _PAGE, "streams": names or None}

    def _list(self, _: str, body: Mapping[str, Any]) -> dict[str, Any]:
        names: list[str] = self._names("", body)["streams"] or []
        offset = int(body.get("offset") or 0)
        page = [self._described(self.store.streams[name]) for name in names[offset : offset + 256]]
        return {"total": len(names), "offset": offset, "limit": 256, "streams": page}

    def _create_durable(self, rest: str, body: Mapping[str, Any]) -> dict[str, Any]:
        stream, _, name = rest.partition(".")
        config: dict[str, Any] = body.get("config") or {}
        if not config.get("durable_name"):
            raise RefusedError(400, 10019, "consumer expected to be durable but a durable name was not set")
        if config["durable_name"] != name:
            raise RefusedError(400, 10017, "consumer name in subject does not match durable name in request")
        return self._made(stream, name, config)

    def _create_consumer(self, rest: str, body: Mapping[str, Any]) -> dict[str, Any]:
        stream, _, named = rest.partition(".")
        name = named.partition(".")[0]
        config: dict[str, Any] = body.get("config") or {}
        if not name:
            if config.get("durable_name"):
                raise RefusedError(
                    400, 10020, "consumer expected to be ephemeral but a durable name was set in request"
                )
            name = str(config.get("name") or "".join(self._random.choices(_LETTERS, k=8)))
        return self._made(stream, name, config)

    def _made(self, name: str, consumer_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._stream(name)
        consumers = self.store.consumers[name]
        if (found := consumers.get(consumer_name)) is not None:
            found.update(config)
            self._work(found)
            return found.info(rfc3339) | {"ts": self._now()}
        if 0 < stream.config["max_consumers"] <= len(consumers):
            raise RefusedError(400, 10026, "maximum consumers limit reached")
        behind = self.lagging.get(name)
        consumer = Consumer(stream, consumer_name, config, self._now_ns(), wire=self._wire, behind=behind)
        consumers[consumer_name] = consumer
        stream.readers[consumer_name] = consumer
        self._watch(consumer)
        return consumer.info(rfc3339) | {"ts": self._now()}

    def _reset(self, rest: str, _: Mapping[str, Any]) -> dict[str, Any]:
        consumer = self._consumer(rest)
        first = consumer.reset(self._now_ns())
        said = consumer.info(rfc3339) | {"ts": self._now(), "reset_seq": first}
        self._loop.call_soon(self._work, consumer)
        return said

    def _consumer_info(self, rest: str, _: Mapping[str, Any]) -> dict[str, Any]:
        return self._consumer(rest).info(rfc3339) | {"ts": self._now()}

    def _delete_consumer(self, rest: str, _: Mapping[str, Any]) -> dict[str, Any]:
        self._end(self._consumer(rest))
        return {"success": True}

    def _consumer_names(self, name: str, _: Mapping[str, Any]) -> dict[str, Any]:
        self._stream(name)
        names = sorted(self.store.consumers[name])
        return {"total": len(names), "offset": 0, "limit": _PAGE, "consumers": names}

    def _consumer_list(self, name: str, _: Mapping[str, Any]) -> dict[str, Any]:
        self._stream(name)
        found = [one.info(rfc3339) for _, one in sorted(self.store.consumers[name].items())]
        return {"total": len(found), "offset": 0, "limit": 256, "consumers": found}

    def _next(self, rest: str, reply: str, data: bytes) -> bytes | None:
        stream, _, name = rest.partition(".")
        consumer = self.store.consumers.get(stream, {}).get(name)
        if consumer is None:
            return None
        self.store.streams[stream].expire(self._now_ns())
        body: dict[str, Any] = {}
        if data.strip():
            body = msgspec.json.decode(data) if data.startswith(b"{") else {"batch": int(data)}
        consumer.ask(reply, body, self._now_ns())
        self._work(consumer)
        return b""

    def _work(self, consumer: Consumer) -> None:
        self._at(consumer, consumer.work(self._now_ns()), self._work, consumer)

    def _expire(self, stream: Stream) -> None:
        stream.expire(self._now_ns())
        self.go_on(stream)

    def _watch(self, consumer: Consumer) -> None:
        """Look now and then whether *consumer* is to go."""
        limit = consumer.config.get("inactive_threshold")
        if not limit:
            return

        def look() -> None:
            if self.store.consumers.get(consumer.stream.name, {}).get(consumer.name) is not consumer:
                return
            if consumer.is_idle(self._now_ns()):
                self._end(consumer)
            else:
                self._loop.call_later(limit / 1e9, look)

        self._loop.call_later(limit / 1e9, look)

    def _end(self, consumer: Consumer) -> None:
        consumer.end()
        self.store.consumers[consumer.stream.name].pop(consumer.name, None)
        consumer.stream.readers.pop(consumer.name, None)
        self._at(consumer, None, self._work, consumer)

    def _at(self, whose: object, when_ns: int | None, call: Callable[..., None], *args: object) -> None:
        """Have *call* come at *when_ns* by our clock, and nothing else of the same; None: nothing."""
        key = id(whose)
        known = self._timers.pop(key, None)
        if known is not None:
            if known[0] == when_ns:
                self._timers[key] = known
                return
            known[1].cancel()
        if when_ns is None:
            return

        def due() -> None:
            del self._timers[key]
            call(*args)

        in_s = max(0, when_ns - self._now_ns()) / 1e9
        self._timers[key] = (when_ns, self._loop.call_later(in_s, due))
