"""The judge of a trial: from what the streams hold and what the processes noted, to what went wrong. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from sunk_trials.words import Line


class StoredFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact as its stream holds it."""

    id: str
    key: str
    number: int
    at_ns: int
    token: str = ""


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """A state as its bucket once held it, or holds it."""

    key: str
    number: int
    revision: int
    at_ns: int
    token: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known after a trial. Facts and states stand in their streams' order."""

    facts: Sequence[StoredFact]
    states: Sequence[StoredState]
    """Every state that was ever stored and seen stored."""
    bucket: Mapping[str, tuple[int, int]]
    """Number and revision by key."""
    written: Sequence[Line]
    """What writers noted."""
    seen: Sequence[Line]
    """What the consumer noted, over all its lives."""
    views: Mapping[str, Mapping[str, tuple[int, int]]]
    """What each process believes the bucket to hold."""


def judge(found: Evidence) -> list[str]:
    """Return every breach of a promise, as sentences; empty is good."""
    return [*_lost(found), *_twice(found), *_disorder(found), *_unannounced(found), *_wrong_views(found)]


def _lost(found: Evidence) -> Iterable[str]:
    stored = {fact.id for fact in found.facts}
    for line in found.written:
        if line.what == "fact" and line.id not in stored:
            yield f"the acknowledged fact {line.id} ({line.number}) is lost"
        number, revision = found.bucket.get(line.key, (0, 0))
        if line.what == "state" and (line.revision > revision or line.number > number):
            yield f"the acknowledged state {line.key}={line.number} is lost: there is {number}"
    for missing in sorted(stored - {line.id for line in found.seen}):
        yield f"the fact {missing} was never handled"


def _twice(found: Evidence) -> Iterable[str]:
    for identity, times in Counter(fact.id for fact in found.facts).items():
        if times > 1:
            yield f"the fact {identity} is stored {times} times"
    for (key, number), times in Counter((fact.key, fact.number) for fact in found.facts).items():
        if times > 1:
            yield f"{key}={number} was told {times} times"


def _disorder(found: Evidence) -> Iterable[str]:
    """Compare the order of first deliveries of each key with the stream's."""
    seen = _by_key((line.key, line.id) for line in found.seen)
    for key, wanted in _by_key((fact.key, fact.id) for fact in found.facts).items():
        first = list(dict.fromkeys(seen.get(key, ())))
        if sorted(first) == sorted(wanted) and first != wanted:
            at = next(place for place, (a, b) in enumerate(zip(first, wanted, strict=True)) if a != b)
            yield f"{key} was handled out of order: {first[at]} before {wanted[at]}"
    last: dict[str, int] = {}
    for fact in found.facts:
        if fact.number < last.get(fact.key, 0):
            yield f"{fact.key}={fact.number} was told after {last[fact.key]}"
        last[fact.key] = fact.number


def _by_key(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return grouped


def _unannounced(found: Evidence) -> Iterable[str]:
    told = {(fact.key, fact.number): fact.at_ns for fact in reversed(found.facts)}
    for state in found.states:
        at_ns = told.get((state.key, state.number))
        if at_ns is None:
            yield f"the state {state.key}={state.number} has no fact"
        elif at_ns > state.at_ns:
            yield f"the state {state.key}={state.number} was stored before its fact"


def _wrong_views(found: Evidence) -> Iterable[str]:
    for owner, view in found.views.items():
        for key in sorted(view.keys() | found.bucket.keys()):
            if view.get(key) != found.bucket.get(key):
                yield f"{owner} believes {key} to be {view.get(key)}, it is {found.bucket.get(key)}"


def fencing(facts: Iterable[StoredFact], states: Iterable[StoredState]) -> list[str]:
    """Return where a leader wrote after its successor had: tokens that go backwards."""
    breaches: list[str] = []
    for what, tokens in (
        ("fact", [int(fact.token) for fact in facts]),
        ("state", [int(state.token) for state in states]),
    ):
        breaches += [
            f"a {what} of token {after} came after one of {before}"
            for before, after in pairwise(tokens)
            if after < before
        ]
    return breaches
