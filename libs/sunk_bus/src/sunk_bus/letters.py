"""Dead letters, and which of them may be published again: facts alone, whole, and under an id of their own.

The id is made of the letter's, so replaying it twice is once within the stream's duplicate window, and a fact
that was buried anew can be replayed anew. A consumer that handled the fact already receives it again, which
is as the stream promises: at least once, and every handler bears it.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from sunk_bus.patterns import place_of
from sunk_bus.reading import Record
from sunk_events import subjects
from sunk_events.base import event_id
from sunk_events.catalog import REQUESTS, STATES
from sunk_events.codec import UndecodableError, decode_event
from sunk_events.dead import DeadLetter

ALL: Final = "all"
_ANY: Final = "*"


class Letter(msgspec.Struct, frozen=True):
    """A dead letter and where it stands; its sequence is what people call it by."""

    seq: int
    stored: datetime
    letter: DeadLetter | None
    problem: str = ""
    """Why the letter itself cannot be read."""

    @property
    def who(self) -> str:
        """Return the service that wrote it."""
        return self.letter.source.rpartition("/")[2] if self.letter else "?"

    @property
    def on(self) -> str:
        """Return the subject that the message came on."""
        return self.letter.data.on if self.letter else "?"

    @property
    def reason(self) -> str:
        """Return why it could not be handled."""
        return self.letter.data.reason if self.letter else self.problem


class Replay(msgspec.Struct, frozen=True):
    """What to publish, for which letters."""

    letters: tuple[int, ...]
    cluster: str
    subject: str
    payload: bytes
    msg_id: str


class Refusal(msgspec.Struct, frozen=True):
    """A letter that is not replayed, and why."""

    letter: int
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """What a replay will do."""

    replays: tuple[Replay, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def letter_of(record: Record) -> Letter:
    """Read a dead letter; one that is none keeps its place and says why."""
    try:
        event = decode_event(record.data)
    except UndecodableError as error:
        return Letter(record.seq, record.stored, None, f"the letter cannot be read: {error}")
    if isinstance(event, DeadLetter):
        return Letter(record.seq, record.stored, event)
    return Letter(record.seq, record.stored, None, "this is not a dead letter")


def is_meant(letter: Letter, *, by: str, on: str) -> bool:
    """Return whether the filters, both globs, let *letter* through."""
    return (not by or fnmatchcase(letter.who, by)) and (not on or fnmatchcase(letter.on, on))


def plan(letters: Sequence[Letter]) -> Plan:
    """Return what replaying *letters* publishes: what several services buried is published once."""
    replays: dict[tuple[str, bytes], Replay] = {}
    refusals: list[Refusal] = []
    for letter in sorted(letters, key=lambda letter: letter.seq, reverse=True):
        if letter.letter is None:
            refusals.append(Refusal(letter.seq, letter.problem))
        elif reason := why_not(letter.letter):
            refusals.append(Refusal(letter.seq, reason))
        else:
            data = letter.letter.data
            same = replays.get((data.on, data.payload))
            place = place_of(data.on)
            replays[data.on, data.payload] = Replay(
                (*same.letters, letter.seq) if same else (letter.seq,),
                place.cluster if place else "",
                data.on,
                data.payload,
                same.msg_id if same else _msg_id(letter.letter),
            )
    ordered = sorted(replays.values(), key=lambda replay: replay.letters[-1])
    return Plan(tuple(ordered), tuple(sorted(refusals, key=lambda refusal: refusal.letter)))


def _msg_id(letter: DeadLetter) -> str:
    return event_id(
        "replay", hashlib.sha256(f"{letter.id} {letter.time.isoformat()}".encode()).hexdigest()[:32]
    )


def why_not(letter: DeadLetter) -> str:
    """Return why *letter* must not be published again, or nothing."""
    on, data = letter.data.on, letter.data
    if reason := _why_not_on(on):
        return reason
    if data.is_cut:
        return f"only the first {len(data.payload)} bytes of the message were kept"
    try:
        msgspec.json.decode(data.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "the message is not JSON: every version of every service would make it a dead letter again"
    return ""


def _why_not_on(on: str) -> str:
    for kind, owner in STATES.items():
        before, _, after = subjects.bucket_keys(subjects.bucket(_ANY, kind)).partition(_ANY)
        if on.startswith(before) and after.removesuffix(">") in on:
            return f"a bucket's key: its owner, {owner}, repairs the state, which it writes again"
    if any(on.startswith(subjects.questions(_ANY, kind).partition(_ANY)[0]) for kind in REQUESTS):
        return "a question: the service that asked has asked again, or no longer needs the answer"
    if on.startswith(subjects.DEAD_LETTERS.removesuffix(">")):
        return "a dead letter about a dead letter: replay the one that it is about"
    return "" if place_of(on) else f"{on!r} is not a subject of facts"


def is_known(payload: bytes) -> bool:
    """Return whether this version can read the fact in *payload*."""
    try:
        decode_event(payload)
    except UndecodableError:
        return False
    return True


def payload_lines(letter: DeadLetter) -> list[str]:
    """Return the message as people read it: indented JSON, or bytes as Python spells them."""
    payload = letter.data.payload
    head = f"payload, {len(payload)} bytes{', the rest was cut off' if letter.data.is_cut else ''}:"
    try:
        return [head, *msgspec.json.format(payload, indent=2).decode().splitlines()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [head, repr(payload)]
