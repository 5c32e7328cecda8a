"""What one stream stores: messages, their limits and their ends.

No I/O and no clock: every call is given the time. What must stay true: sequences only grow; a subject's
last message is found at once; what is removed is told to whoever reads.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from sunk_simulation import reached
from sunk_simulation.bus import headers
from sunk_simulation.bus.interest import matches

_S: Final = 1_000_000_000
DEFAULTS: Final[Mapping[str, Any]] = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120 * _S,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "consumer_limits": {},
}
_LEFT_OUT: Final = frozenset(
    {"discard_new_per_subject", "no_ack", "allow_msg_counter", "subject_delete_marker_ttl", "allow_msg_ttl"}
)
"""What an answer leaves out where it is false or 0."""


class Message(msgspec.Struct, frozen=True):
    """One stored message."""

    seq: int
    subject: str
    headers: bytes
    data: bytes
    stored_ns: int
    expires_ns: int = 0
    """0: never."""

    @property
    def size(self) -> int:
        """What it takes on the disk, as nats-server counts."""
        return 30 + len(self.subject) + len(self.data) + (4 + len(self.headers) if self.headers else 0)


class RefusedError(Exception):
    """What was asked is refused, as JetStream says it."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.answer: Final[dict[str, Any]] = {
            "code": code,
            "err_code": err_code,
            "description": description,
        }


class Reader:
    """Whoever reads a stream: its consumers."""

    def stored(self, message: Message) -> None:
        """Take note of a new message."""

    def removed(self, message: Message) -> None:
        """Take note that one is gone."""


def settled(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole configuration that *config* asks for."""
    known = {**DEFAULTS, **{name: value for name, value in config.items() if value is not None}}
    if not known.get("subjects"):
        known["subjects"] = [known["name"]]
    for limit in ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size"):
        known[limit] = known[limit] or -1
    if not known["duplicate_window"]:
        known["duplicate_window"] = 120 * _S
    known["num_replicas"] = known["num_replicas"] or 1
    for name in _LEFT_OUT:
        if not known.get(name):
            known.pop(name, None)
    return known


class Stream:
    """The messages of one stream."""

    def __init__(self, config: Mapping[str, Any], created_ns: int) -> None:
        self.config = settled(config)
        self.created_ns: Final = created_ns
        self.messages: dict[int, Message] = {}
        self.first_seq = 0
        self.last_seq = 0
        self.last_ns = 0
        self.size = 0
        self.subjects: dict[str, dict[int, None]] = {}
        """The sequences on each subject, in their order."""
        self.readers: dict[str, Reader] = {}
        self._ids: dict[str, tuple[int, int]] = {}
        """What was stored under a ``Nats-Msg-Id``, and when."""
        self._due: list[tuple[int, int]] = []

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.config["name"])

    def copy(self) -> "Stream":
        """Return what it is now, without those who read it."""
        other = Stream(self.config, self.created_ns)
        other.messages = dict(self.messages)
        other.first_seq, other.last_seq, other.last_ns = self.first_seq, self.last_seq, self.last_ns
        other.size = self.size
        other.subjects = {subject: dict(sequences) for subject, sequences in self.subjects.items()}
        other._ids = dict(self._ids)
        other._due = list(self._due)
        return other

    def takes(self, subject: str) -> bool:
        """Whether it stores what is published on *subject*."""
        return any(matches(pattern, subject) for pattern in self.config["subjects"])

    def last_on(self, subject: str) -> Message | None:
        """Return the last message on *subject*, which may have wildcards."""
        if "*" not in subject and ">" not in subject:
            sequences = self.subjects.get(subject)
            return self.messages[next(reversed(sequences))] if sequences else None
        last = max(
            (next(reversed(found)) for one, found in self.subjects.items() if matches(subject, one)),
            default=0,
        )
        return self.messages.get(last)

    def next_on(self, subject: str, seq: int) -> Message | None:
        """Return the first message on *subject* from *seq* on."""
        for one in self.messages:
            if one >= seq and matches(subject, self.messages[one].subject):
                return self.messages[one]
        return None

    def store(
        self, subject: str, raw: bytes, data: bytes, now_ns: int, *, free: int | None = None
    ) -> tuple[int, bool]:
        """Store a message; return its sequence, and whether it was there already.

        Args:
            subject: On what it was published.
            raw: Its headers, as they came.
            data: Its payload.
            now_ns: The time.
            free: How many bytes the server has left; None: enough.

        Raises:
            RefusedError: it is not stored.
        """
        asked = headers.parse(raw) if raw else {}
        expected = asked.get("Nats-Expected-Stream")
        if expected is not None and expected != self.name:
            raise RefusedError(400, 10060, "expected stream does not match")
        lives_ns = self._ttl(asked)
        if (msg_id := asked.get("Nats-Msg-Id")) and (known := self._known(msg_id, now_ns)):
            return known, True
        self._check(asked, subject)
        rollup = asked.get("Nats-Rollup")
        if rollup and not self.config["allow_rollup_hdrs"]:
            raise RefusedError(400, 10111, "rollup not permitted")
        stored_ns = now_ns + (now_ns == self.last_ns)
        expires_ns = stored_ns + lives_ns if lives_ns else 0
        message = Message(self.last_seq + 1, subject, raw, data, stored_ns, expires_ns)
        if free is not None and free < 0:  # As nats-server: only what comes after it was too much is refused.
            raise RefusedError(503, 10047, "insufficient storage resources available")
        self._make_room(message)
        self._add(message)
        if self.name.startswith("KV_"):
            reached.told(self.name, data)
        if msg_id:
            self._ids[msg_id] = (message.seq, now_ns)
        self._drop_old(subject)
        if rollup == "sub":
            self._drop([seq for seq in self.subjects[subject] if seq != message.seq])
        elif rollup == "all":
            self._drop([seq for seq in self.messages if seq != message.seq])
        return message.seq, False

    def purge(self, subject: str = "", *, below: int = 0, keep: int = 0) -> int:
        """Remove messages; return how many."""
        doomed = [seq for seq, one in self.messages.items() if not subject or matches(subject, one.subject)]
        if below:
            doomed = [seq for seq in doomed if seq < below]
        if keep:
            doomed = doomed[:-keep]
        self._drop(doomed)
        if not self.messages:
            self.first_seq = self.last_seq + 1
        return len(doomed)

    def trim(self) -> None:
        """Remove what is more than the limits allow, after these were changed."""
        for subject in list(self.subjects):
            self._drop_old(subject)

    def delete(self, seq: int) -> bool:
        """Remove one message; return whether it was there."""
        is_there = seq in self.messages
        if is_there:
            self._drop([seq])
        return is_there

    def expire(self, now_ns: int) -> None:
        """Remove what is too old, and leave markers where the stream has any."""
        age = self.config["max_age"]
        while self._due and self._due[0][0] <= now_ns:
            _, seq = heapq.heappop(self._due)
            self._end(seq, now_ns)
        while age and self.messages:
            seq = next(iter(self.messages))
            if self.messages[seq].stored_ns + age > now_ns:
                break
            self._end(seq, now_ns)

    def next_end_ns(self) -> int | None:
        """Return when `expire` has something to do next."""
        ends = [self._due[0][0]] if self._due else []
        if self.config["max_age"] and self.messages:
            ends.append(next(iter(self.messages.values())).stored_ns + int(self.config["max_age"]))
        return min(ends, default=None)

    def state(self, now: Callable[[int], str], *, subjects: str = "") -> dict[str, Any]:
        """Return what JetStream says of it; *subjects* selects those whose messages are counted."""
        first = self.messages.get(self.first_seq)
        said: dict[str, Any] = {
            "messages": len(self.messages),
            "bytes": self.size,
            "first_seq": self.first_seq,
            "first_ts": now(first.stored_ns) if first else now(0),
            "last_seq": self.last_seq,
            "last_ts": now(self.last_ns),
        }
        if self.subjects:
            said["num_subjects"] = len(self.subjects)
            if subjects:
                said["subjects"] = {
                    one: len(found) for one, found in sorted(self.subjects.items()) if matches(subjects, one)
                }
        if self.messages and (gone := self.last_seq - self.first_seq + 1 - len(self.messages)):
            said["num_deleted"] = gone
        return said

    def _ttl(self, asked: Mapping[str, str]) -> int:
        if (text := asked.get("Nats-TTL")) is None:
            return 0
        if not self.config.get("allow_msg_ttl"):
            raise RefusedError(400, 10166, "per-message TTL is disabled")
        lives_ns = headers.ttl_ns(text)
        if lives_ns is None:
            raise RefusedError(400, 10165, "invalid per-message TTL")
        return lives_ns

    def _known(self, msg_id: str, now_ns: int) -> int | None:
        window = self.config["duplicate_window"]
        for one, (_, stored_ns) in list(self._ids.items()):
            if stored_ns + window > now_ns:
                break
            del self._ids[one]
        found = self._ids.get(msg_id)
        return found[0] if found else None

    def _check(self, asked: Mapping[str, str], subject: str) -> None:
        text = asked.get("Nats-Expected-Last-Subject-Sequence")
        if text is not None:
            last = self.last_on(asked.get("Nats-Expected-Last-Subject-Sequence-Subject", subject))
            has = last.seq if last else 0
            if has != int(text):
                raise RefusedError(400, 10071, f"wrong last sequence: {has}")
        text = asked.get("Nats-Expected-Last-Sequence")
        if text is not None and int(text) != self.last_seq:
            raise RefusedError(400, 10071, f"wrong last sequence: {self.last_seq}")

    def _make_room(self, message: Message) -> None:
        config = self.config
        if 0 < config["max_msg_size"] < len(message.data) + len(message.headers):
            raise RefusedError(400, 10054, "message size exceeds maximum allowed")
        if config["discard"] != "new":
            return
        replaced = 0
        if config["max_msgs_per_subject"] > 0:
            held = self.subjects.get(message.subject, {})
            is_full = len(held) >= config["max_msgs_per_subject"]
            if is_full and config.get("discard_new_per_subject"):
                raise RefusedError(503, 10077, "maximum messages per subject exceeded")
            replaced = int(is_full)
        if 0 <= config["max_msgs"] <= len(self.messages) - replaced:
            raise RefusedError(503, 10077, "maximum messages exceeded")
        size = self.messages[next(iter(self.subjects[message.subject]))].size if replaced else 0
        if 0 <= config["max_bytes"] < self.size - size + message.size:
            raise RefusedError(503, 10077, "maximum bytes exceeded")

    def _add(self, message: Message) -> None:
        self.last_seq, self.last_ns = message.seq, message.stored_ns
        if not self.messages:
            self.first_seq = message.seq
        self.messages[message.seq] = message
        self.subjects.setdefault(message.subject, {})[message.seq] = None
        self.size += message.size
        if message.expires_ns:
            heapq.heappush(self._due, (message.expires_ns, message.seq))
        for reader in list(self.readers.values()):
            reader.stored(message)

    def _drop_old(self, subject: str) -> None:
        config = self.config
        most = config["max_msgs_per_subject"]
        held = self.subjects[subject]
        if 0 < most < len(held):
            self._drop(list(held)[: len(held) - most])
        while 0 < config["max_msgs"] < len(self.messages) or 0 < config["max_bytes"] < self.size:
            self._drop([next(iter(self.messages))])

    def _end(self, seq: int, now_ns: int) -> None:
        message = self.messages.get(seq)
        if message is None:
            return
        is_last = next(reversed(self.subjects[message.subject])) == seq
        self._drop([seq])
        marker_ns = self.config.get("subject_delete_marker_ttl", 0)
        if is_last and marker_ns and not _is_marker(message.headers):
            said = {
                "Nats-Marker-Reason": "MaxAge",
                "Nats-TTL": headers.duration(marker_ns),
                "Nats-Rollup": "sub",
            }
            stored_ns = now_ns + (now_ns == self.last_ns)
            marker = Message(
                self.last_seq + 1,
                message.subject,
                headers.render(said),
                b"",
                stored_ns,
                stored_ns + marker_ns,
            )
            self._add(marker)

    def _drop(self, sequences: Iterable[int]) -> None:
        for seq in list(sequences):
            message = self.messages.pop(seq)
            held = self.subjects[message.subject]
            del held[seq]
            if not held:
                del self.subjects[message.subject]
            self.size -= message.size
            if seq == self.first_seq:
                self.first_seq = next(iter(self.messages), self.last_seq + 1)
            for reader in list(self.readers.values()):
                reader.removed(message)


def _is_marker(raw: bytes) -> bool:
    """Whether headers tell of an end already: after a marker, or a purge of a key, comes no other one."""
    found = headers.parse(raw) if raw else {}
    return "Nats-Marker-Reason" in found or found.get("KV-Operation") == "PURGE"
