"""One pull consumer: what it has delivered, what waits to be acknowledged, and who asked for more.

Source: nats-server 2.15, ``server/consumer.go``: `processNextMsgRequest`, `processWaiting`, `processAck`,
`loopAndGatherMsgs`; measured where that says nothing.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from sunk_simulation.bus import headers
from sunk_simulation.bus.interest import matches
from sunk_simulation.bus.stream import Message, Reader, RefusedError, Stream

_S: Final = 1_000_000_000
ACK_WAIT_NS: Final = 30 * _S
MAX_WAITING: Final = 512
INACTIVE_NS: Final = 5 * _S
_FIXED: Final = {
    "deliver_policy": "deliver policy can not be updated",
    "ack_policy": "ack policy can not be updated",
    "replay_policy": "replay policy can not be updated",
}


class Wire(Protocol):
    """Where what a consumer says goes."""

    def send(self, subject: str, reply: str, raw: bytes, data: bytes, *, as_subject: str = "") -> None:
        """Send to whoever listens on *subject*; who gets it sees *as_subject*."""
        ...

    def has_interest(self, subject: str) -> bool:
        """Whether somebody listens on *subject*."""
        ...


class Ask(msgspec.Struct):
    """Somebody's wish for more."""

    reply: str
    left: int
    expires_ns: int
    no_wait: bool
    heartbeat_ns: int
    heartbeat_due_ns: int
    given: int = 0


class Unacked(msgspec.Struct):
    """A delivery that waits for its acknowledgement."""

    consumer_seq: int
    due_ns: int


def settled(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole configuration that *config* asks for."""
    known = {name: value for name, value in config.items() if value not in (None, "")}
    known.setdefault("deliver_policy", "all")
    known.setdefault("ack_policy", "none")
    known.setdefault("replay_policy", "instant")
    known["max_deliver"] = known.get("max_deliver") or -1
    known.setdefault("max_waiting", MAX_WAITING)
    known.setdefault("num_replicas", 0)
    if known["ack_policy"] != "none":
        known["ack_wait"] = known.get("ack_wait") or ACK_WAIT_NS
        known["max_ack_pending"] = known.get("max_ack_pending") or 1000
    if known.get("durable_name"):
        known["name"] = known["durable_name"]
    else:
        known.setdefault("inactive_threshold", INACTIVE_NS)
    return known


class Consumer(Reader):
    """One consumer of one stream."""

    def __init__(
        self,
        stream: Stream,
        name: str,
        config: Mapping[str, Any],
        created_ns: int,
        *,
        wire: Wire,
        behind: int | None = None,
    ) -> None:
        """Make one; *behind*: it reads a replica that has nothing after this sequence yet."""
        self.stream = stream
        self.name: Final = name
        self.config = settled(config)
        self.created_ns: Final = created_ns
        self.wire = wire
        self.behind = behind
        self.active_ns = created_ns
        self.consumer_seq = 0
        """Of the last delivery."""
        self.stream_seq = 0
        """What was delivered last of the stream, but for repetitions."""
        self.floor = (0, 0)
        """Up to where everything is acknowledged: of deliveries, and of the stream."""
        self.last_delivered_ns = 0
        self.unacked: dict[int, Unacked] = {}
        self.repeats: dict[int, int] = {}
        """How often what waits was delivered before, where that is not once."""
        self.again: deque[int] = deque()
        """What is to be delivered once more, now."""
        self.asks: deque[Ask] = deque()
        self.firsts: deque[int] = deque()
        """What stands before everything else: the last message of each subject, at the beginning."""
        self.pending = 0
        self._next = 1
        self._begin()

    @property
    def is_durable(self) -> bool:
        """Whether it stays when nobody asks it for anything."""
        return bool(self.config.get("durable_name"))

    def copy(self, stream: Stream, wire: Wire) -> "Consumer":
        """Return what it is now, over *stream*, without anybody who waits."""
        other = Consumer(stream, self.name, self.config, self.created_ns, wire=wire)
        other.consumer_seq, other.stream_seq, other.floor = self.consumer_seq, self.stream_seq, self.floor
        other.unacked = {seq: msgspec.structs.replace(one) for seq, one in self.unacked.items()}
        other.repeats, other.again = dict(self.repeats), deque(self.again)
        other.firsts, other._next = deque(self.firsts), self._next
        other.recount()
        return other

    def update(self, config: Mapping[str, Any]) -> None:
        """Take other settings.

        Raises:
            RefusedError: that cannot be changed.
        """
        wanted = settled(config)
        for name, words in _FIXED.items():
            if wanted[name] != self.config[name]:
                raise RefusedError(500, 10012, words)
        is_other = wanted.get("filter_subject") != self.config.get("filter_subject")
        self.config = wanted
        if is_other:
            self.recount()

    def stored(self, message: Message) -> None:
        """Take note of a new message."""
        if self.wants(message.subject):
            self.pending += 1

    def removed(self, message: Message) -> None:
        """Take note that one is gone."""
        if self.wants(message.subject) and self._is_to_come(message.seq):
            self.pending -= 1

    def wants(self, subject: str) -> bool:
        """Whether it delivers what is on *subject*."""
        one = self.config.get("filter_subject")
        if one:
            return matches(one, subject)
        several = self.config.get("filter_subjects")
        return not several or any(matches(pattern, subject) for pattern in several)

    def recount(self) -> None:
        """Count anew what is to come."""
        self.pending = sum(
            self.wants(one.subject) and self._is_to_come(one.seq) for one in self.stream.messages.values()
        )

    def ask(self, reply: str, body: Mapping[str, Any], now_ns: int) -> None:
        """Take a wish for more."""
        self.active_ns = now_ns
        batch, expires = int(body.get("batch") or 1), int(body.get("expires") or 0)
        no_wait, heartbeat = bool(body.get("no_wait")), int(body.get("idle_heartbeat") or 0)
        if len(self.asks) >= self.config["max_waiting"]:
            self._drop_asks(now_ns)
            if len(self.asks) >= self.config["max_waiting"]:
                self._say(reply, "409 Exceeded MaxWaiting")
                return
        if no_wait:
            waits = self.pending + len(self.again)
            if not waits and not expires:
                self._say(reply, "404 No Messages")
                return
            if waits and waits < sum(ask.left for ask in self.asks):
                self._say(reply, "408 Requests Pending")
                return
        expires_ns = now_ns + expires if expires else 0
        self.asks.append(Ask(reply, batch, expires_ns, no_wait, heartbeat, now_ns + heartbeat))

    def acknowledge(self, seq: int, words: bytes, now_ns: int) -> None:
        """Take what somebody says of a delivery."""
        self.active_ns = now_ns
        waits = self.unacked.get(seq)
        if waits is None:
            return
        if words.startswith(b"-NAK"):
            self._again_after(seq, waits, words[4:].strip(), now_ns)
        elif words.startswith(b"+WPI"):
            waits.due_ns = now_ns + self.config["ack_wait"]
        else:
            self._settle(seq, waits)

    def reset(self, now_ns: int) -> int:
        """Begin again behind what is acknowledged without a gap; return at which sequence."""
        self.active_ns = now_ns
        self.unacked.clear()
        self.repeats.clear()
        self.again.clear()
        self.consumer_seq = 0
        self.stream_seq = self.floor[1]
        self.floor = (0, self.floor[1])
        self._next = self.stream_seq + 1
        self.recount()
        return self._next

    def work(self, now_ns: int) -> int | None:
        """Deliver what can be, say what is due; return when to be called next, None: at a change."""
        self._find_overdue(now_ns)
        while self.asks:
            ask = self._next_ask(now_ns)
            if ask is None:
                break
            message, before = self._next_message()
            if message is None:
                break
            self._deliver(ask, message, before, now_ns)
        self._drop_asks(now_ns, is_at_end=True)
        self._beat(now_ns)
        return self._next_due()

    def info(self, time: Any) -> dict[str, Any]:
        """Return what JetStream says of it; *time* writes times."""
        delivered: dict[str, Any] = {"consumer_seq": self.consumer_seq, "stream_seq": self.stream_seq}
        if self.last_delivered_ns:
            delivered["last_active"] = time(self.last_delivered_ns)
        return {
            "stream_name": self.stream.name,
            "name": self.name,
            "created": time(self.created_ns),
            "config": self.config,
            "delivered": delivered,
            "ack_floor": {"consumer_seq": self.floor[0], "stream_seq": self.floor[1]},
            "num_ack_pending": len(self.unacked),
            "num_redelivered": len(self.repeats),
            "num_waiting": len(self.asks),
            "num_pending": self.pending,
        }

    def end(self) -> None:
        """Tell everybody who waits that it is gone."""
        for ask in self.asks:
            self._say(ask.reply, "409 Consumer Deleted")
        self.asks.clear()

    def is_idle(self, now_ns: int) -> bool:
        """Whether it is to go, as nobody has asked it for anything for too long."""
        limit = self.config.get("inactive_threshold")
        if not limit or any(self.wire.has_interest(ask.reply) for ask in self.asks):
            return False
        return now_ns - self.active_ns >= limit

    def _begin(self) -> None:
        policy, stream = self.config["deliver_policy"], self.stream
        self._next = max(stream.first_seq, 1)
        last = stream.last_seq if self.behind is None else self.behind
        match policy:
            case "new":
                self._next = last + 1
            case "last":
                found = stream.last_on(self.config.get("filter_subject") or ">")
                self._next = found.seq if found else last + 1
            case "last_per_subject":
                seqs = [
                    max((seq for seq in held if seq <= last), default=0)
                    for subject, held in stream.subjects.items()
                    if self.wants(subject)
                ]
                self.firsts = deque(sorted(seq for seq in seqs if seq))
                self._next = last + 1
            case "by_start_sequence":
                self._next = int(self.config.get("opt_start_seq") or 1)
            case _:
                pass
        self.stream_seq = self.floor_seq = 0
        self.recount()
        if self.behind is not None:
            self.pending = len(self.firsts) if policy == "last_per_subject" else self.pending

    def _is_to_come(self, seq: int) -> bool:
        return seq >= self._next or (bool(self.firsts) and seq in self.firsts)

    def _find_overdue(self, now_ns: int) -> None:
        if not self.unacked:
            return
        for seq, waits in list(self.unacked.items()):
            if waits.due_ns <= now_ns and seq not in self.again:
                self.again.append(seq)

    def _next_ask(self, now_ns: int) -> Ask | None:
        self._drop_asks(now_ns)
        return self.asks[0] if self.asks else None

    def _next_message(self) -> tuple[Message | None, int]:
        """Return what is to be delivered now, and how often it was before."""
        messages = self.stream.messages
        while self.again:
            seq = self.again.popleft()
            if seq not in messages:
                self.unacked.pop(seq, None)
                continue
            times = self.repeats.get(seq, 1)
            if 0 < self.config["max_deliver"] <= times:
                continue
            self.repeats[seq] = times + 1
            return messages[seq], times
        if self.config["ack_policy"] != "none" and len(self.unacked) >= self.config["max_ack_pending"]:
            return None, 0
        while self.firsts:
            seq = self.firsts.popleft()
            if seq in messages:
                self.pending -= 1
                return messages[seq], 0
        last = self.stream.last_seq if self.behind is None else self.behind
        while self._next <= last:
            seq = self._next
            self._next += 1
            message = messages.get(seq)
            if message is not None and self.wants(message.subject):
                self.pending -= 1
                return message, 0
        return None, 0

    def _deliver(self, ask: Ask, message: Message, before: int, now_ns: int) -> None:
        self.consumer_seq += 1
        self.last_delivered_ns = now_ns
        if not before:
            self.stream_seq = message.seq
        if self.config["ack_policy"] == "none":
            self.floor = (self.consumer_seq, self.stream_seq)
        elif message.seq in self.unacked:
            self.unacked[message.seq].due_ns = now_ns + self.config["ack_wait"]
        else:
            self.unacked[message.seq] = Unacked(self.consumer_seq, now_ns + self.config["ack_wait"])
        place = f"{before + 1}.{message.seq}.{self.consumer_seq}.{message.stored_ns}.{self.pending}"
        reply = f"$JS.ACK.{self.stream.name}.{self.name}.{place}"
        ask.left -= 1
        ask.given += 1
        ask.heartbeat_due_ns = now_ns + ask.heartbeat_ns
        if not ask.left:
            self.asks.popleft()
        else:
            self.asks.rotate(-1)
        self.wire.send(ask.reply, reply, message.headers, message.data, as_subject=message.subject)

    def _drop_asks(self, now_ns: int, *, is_at_end: bool = False) -> None:
        for ask in list(self.asks):
            is_over = ask.expires_ns and now_ns >= ask.expires_ns
            if is_over or (is_at_end and ask.no_wait and ask.given):
                self.asks.remove(ask)
                pending = {"Nats-Pending-Messages": str(ask.left), "Nats-Pending-Bytes": "0"}
                self._say(ask.reply, "408 Request Timeout", pending)
            elif not self.wire.has_interest(ask.reply):
                self.asks.remove(ask)

    def _beat(self, now_ns: int) -> None:
        for ask in self.asks:
            if ask.heartbeat_ns and ask.heartbeat_due_ns <= now_ns:
                ask.heartbeat_due_ns = now_ns + ask.heartbeat_ns
                said = {
                    "Nats-Last-Consumer": str(self.consumer_seq),
                    "Nats-Last-Stream": str(self.stream_seq),
                }
                self._say(ask.reply, "100 Idle Heartbeat", said)

    def _next_due(self) -> int | None:
        due = [ask.expires_ns for ask in self.asks if ask.expires_ns]
        due += [ask.heartbeat_due_ns for ask in self.asks if ask.heartbeat_ns]
        if self.asks and self.unacked:
            due.append(min(waits.due_ns for waits in self.unacked.values()))
        return min(due, default=None)

    def _again_after(self, seq: int, waits: Unacked, body: bytes, now_ns: int) -> None:
        delay = 0
        if body:
            delay = int(msgspec.json.decode(body, type=dict[str, int]).get("delay", 0))
        if delay:
            waits.due_ns = now_ns + delay
            if seq in self.again:
                self.again.remove(seq)
        elif seq not in self.again:
            waits.due_ns = now_ns
            self.again.append(seq)

    def _settle(self, seq: int, waits: Unacked) -> None:
        del self.unacked[seq]
        self.repeats.pop(seq, None)
        if seq in self.again:
            self.again.remove(seq)
        if not self.unacked:
            self.floor = (self.consumer_seq, self.stream_seq)
        elif waits.consumer_seq == self.floor[0] + 1:
            first = min(self.unacked)
            self.floor = (self.unacked[first].consumer_seq - 1, first - 1)

    def _say(self, reply: str, status: str, more: dict[str, str] | None = None) -> None:
        self.wire.send(reply, "", headers.render(more or {}, status), b"")
