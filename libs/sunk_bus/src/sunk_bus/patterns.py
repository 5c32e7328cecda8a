"""What people type for a subject, to what NATS filters by.

``slurm.node.*``, ``lock``, ``drained``, ``gpu-1``, ``gpu-*`` and whole subjects are understood. What there is
comes from the contract's own tables, so a new fact is known here at once.
"""

from fnmatch import fnmatchcase
from typing import Final

import msgspec

from sunk_events import subjects
from sunk_events.catalog import EVENTS
from sunk_events.dead import DeadLetter
from sunk_runtime.errors import ConfigError

DEAD_WORDS: Final = frozenset({"dead", "dlq", "dead-letter", "dead-letters"})
_FACTS: Final = subjects.EVERYTHING.removesuffix(">")
_DEAD: Final = subjects.DEAD_LETTERS.removesuffix(">")
_PARTS: Final = tuple(
    subjects.facts("*", kind).removeprefix(f"{_FACTS}*.").split(".")
    for kind in EVENTS
    if kind is not DeadLetter
)
_SYSTEMS: Final = frozenset(system for system, *_ in _PARTS)
_KINDS: Final = frozenset(kind for _, kind, *_ in _PARTS)
PLACES: Final = tuple(dict.fromkeys(f"{system}.{kind}" for system, kind, *_ in _PARTS))
WORDS: Final = tuple(dict.fromkeys(word for *_, word in _PARTS))


class Pattern(msgspec.Struct, frozen=True):
    """Which messages to show."""

    cluster: str = "*"
    rest: str = ">"
    """What follows the cluster in the subject."""
    entity: str = ""
    """A glob on the entity, where NATS has no wildcard for it."""
    is_dead: bool = False
    """Dead letters, not facts."""
    is_name: bool = False
    """Taken for an entity's name, as nothing else is called so."""

    def filter_for(self, cluster: str) -> str:
        """Return the subject to filter the stream of *cluster* by."""
        return f"{_DEAD if self.is_dead else _FACTS}{cluster}.{self.rest}"


class Place(msgspec.Struct, frozen=True):
    """What a fact's subject says."""

    cluster: str
    place: str
    entity: str
    word: str


def parse(typed: str) -> Pattern:
    """Understand what somebody typed.

    Raises:
        ConfigError: nothing is called so; says what there is.
    """
    if typed in {"", ">", "*"}:
        return Pattern()
    if typed in DEAD_WORDS:
        return Pattern(is_dead=True)
    if any(letter.isspace() for letter in typed):
        raise _unknown(typed)
    for prefix, is_dead in ((_FACTS, False), (_DEAD, True)):
        if typed.startswith(prefix):
            cluster, _, rest = typed.removeprefix(prefix).partition(".")
            return Pattern("*" if cluster == ">" else cluster, rest or ">", is_dead=is_dead)
    return _short(typed)


def _short(typed: str) -> Pattern:
    head, *tail = typed.split(".")
    if head in _SYSTEMS:
        return _in_system(head, tail, typed)
    if head in _KINDS:
        return _within(f"*.{head}", tail)
    if head == subjects.EVERYTHING.partition(".")[0]:
        raise _unknown(typed)
    if typed in WORDS:
        return Pattern(rest=f"*.*.*.{typed}")
    return msgspec.structs.replace(_within("*.*", [head, *tail]), is_name=True)


def _in_system(system: str, tail: list[str], typed: str) -> Pattern:
    if tail in ([], ["*"], [">"]):
        return Pattern(rest=f"{system}.>")
    kind, *more = tail
    if kind != "*" and f"{system}.{kind}" not in PLACES:
        raise _unknown(typed)
    return _within(f"{system}.{kind}", more)


def _within(place: str, tail: list[str]) -> Pattern:
    """Return the pattern of an entity, whose name may hold dots, and perhaps a fact's word."""
    if tail in ([], ["*"], [">"], ["*", "*"]):
        return Pattern(rest=f"{place}.>")
    word = "*"
    if len(tail) > 1 and (tail[-1] in WORDS or tail[-1] in {"*", ">"}):
        *tail, last = tail
        word = "*" if last == ">" else last
    entity = ".".join(tail)
    if any(letter in entity for letter in "*?["):
        return Pattern(rest=f"{place}.*.{word}", entity="" if entity == "*" else entity)
    # What is escaped already, copied from a subject, stays so.
    return Pattern(rest=f"{place}.{entity if '=' in entity else subjects.token(entity)}.{word}")


def _unknown(typed: str) -> ConfigError:
    return ConfigError(
        f"there are no facts {typed!r}; there are {', '.join(PLACES)}, each with .NAME or .NAME.WORD; "
        f"the words {', '.join(WORDS)}; a name of a node, job or Pod; dead; or a whole subject "
        f"such as {subjects.EVERYTHING}"
    )


def place_of(subject: str) -> Place | None:
    """Return what the subject of a fact says, or None for another's."""
    cluster, *tokens = subject.removeprefix(_FACTS).split(".")
    if not subject.startswith(_FACTS) or len(tokens) < len(_PARTS[0]):
        return None
    system, kind, *entity, word = tokens
    return Place(cluster, f"{system}.{kind}", name_of(".".join(entity)), word)


def name_of(escaped: str) -> str:
    """Return what `subjects.token` escaped, as it is where it is no escape."""
    try:
        return subjects.from_token(escaped)
    except ValueError:
        return escaped


def is_shown(pattern: Pattern, subject: str) -> bool:
    """Return whether *subject*, which NATS let through, matches the glob on the entity too."""
    if not pattern.entity:
        return True
    place = place_of(subject)
    return place is not None and fnmatchcase(place.entity, pattern.entity)
