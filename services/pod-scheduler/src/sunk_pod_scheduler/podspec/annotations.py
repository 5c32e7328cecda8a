"""The fifteen annotations that a Pod's user may write, to Slurm's job description, as one table.

They are checked for being well-formed, never for being true: whether there is such a partition is for
Slurm to say.

Source: SUNK's documents, "Annotations reference"; slurmrestd v0.0.44, ``job_desc_msg``.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from sunk_kube.wellknown import PREFIX
from sunk_slurm import hostlist
from sunk_slurm.wire import Number

TEXT_MAX: Final = 1023
"""Slurm refuses longer texts."""
NAMES_MAX: Final = 10_000
"""Nodes that an annotation may name, each as often as it is spelled."""
_PRIORITY_MAX: Final = 0xFFFF_FFFD
"""The two above it are Slurm's "unset" and "infinite"."""
_ID_MAX: Final = 0xFFFF_FFFD
_MINUTES_MAX: Final = 0xFFFF_FFFD
_HOSTLIST: Final = re.compile(r"[A-Za-z0-9_.,\[\]-]+")
_DIGITS_MAX: Final = 20
"""Leading zeros and all."""

SHARED_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "none": ("none",),  # The whole node: no other job.
    "user": ("user",),  # Jobs of the same Slurm user.
    "ok": ("oversubscribe",),
}
OLD_SHARED_OF: Final[Mapping[str, tuple[str, ...]]] = {"true": ("none",), "false": ()}
"""Until SUNK 5.7 the annotation was a boolean; the Pod that still says it is warned."""


def _text(value: str) -> str:
    if len(value) > TEXT_MAX:
        raise ValueError(f"is longer than {TEXT_MAX} characters")
    if not value.isprintable():
        raise ValueError("must be one line of printable characters")
    return value


def _word(value: str) -> str:
    if any(character.isspace() for character in _text(value)):
        raise ValueError("must not contain spaces")
    return value


def _path(value: str) -> str:
    if not _text(value).startswith("/"):
        raise ValueError("must be an absolute path")
    return value


def _names(value: str) -> tuple[str, ...]:
    if not _HOSTLIST.fullmatch(_word(value)):
        raise ValueError("is not a host list: a node's name has letters, digits, '.', '_' and '-' only")
    if not (found := _expanded(value)):
        raise ValueError("names no node")  # Else it would require any node, and exclude none.
    return found


@lru_cache(maxsize=32)
def _expanded(value: str) -> tuple[str, ...]:
    """Return the names in *value*: asked for at each look at each Pod, and few texts name many."""
    return hostlist.expand(value, NAMES_MAX)


def _shared(value: str) -> tuple[str, ...]:
    found = SHARED_OF.get(value, OLD_SHARED_OF.get(value.lower()))
    if found is None:
        raise ValueError(f"must be one of {', '.join(SHARED_OF)}")
    return found


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        is_number = value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
        if not is_number or not low <= int(value) <= high:
            raise ValueError(
                f"must be an integer from {max(low, 1)} to {high}"
            )  # An id 0 is refused as root.
        return int(value)

    return parse


def _number(low: int, high: int) -> Callable[[str], Number]:
    parse = _whole(low, high)
    return lambda value: Number.of(parse(value))


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a Pod's annotations ask for, under the names of Slurm's job description."""

    account: str = ""
    comment: str = ""
    constraints: str = ""
    current_working_directory: str = "/"
    excluded_nodes: tuple[str, ...] = ()
    group_id: int | None = None
    partition: str = ""
    prefer: str = ""
    priority: Number | None = None
    qos: str = ""
    required_nodes: tuple[str, ...] = ()
    reservation: str = ""
    shared: tuple[str, ...] = ()
    time_limit: Number | None = None
    user_id: int | None = None


class Rule(msgspec.Struct, frozen=True):
    """Which field of `JobOptions` an annotation sets, and how its text is read."""

    field: str
    parse: Callable[[str], Any]
    """Raises ValueError with what is wrong. ``Any``, because each field has its own type."""


RULES: Final[Mapping[str, Rule]] = {
    "account": Rule("account", _word),
    "comment": Rule("comment", _text),
    "constraints": Rule("constraints", _text),
    "current-working-dir": Rule("current_working_directory", _path),
    "excluded-nodes": Rule("excluded_nodes", _names),
    "exclusive": Rule("shared", _shared),
    "group-id": Rule("group_id", _whole(0, _ID_MAX)),
    "partition": Rule("partition", _word),
    "prefer": Rule("prefer", _text),
    "priority": Rule("priority", _number(1, _PRIORITY_MAX)),  # 0 is Slurm's word for held.
    "qos": Rule("qos", _word),
    "required-nodes": Rule("required_nodes", _names),
    "reservation": Rule("reservation", _word),
    "timeout": Rule("time_limit", _number(1, _MINUTES_MAX)),
    "user-id": Rule("user_id", _whole(0, _ID_MAX)),
}


def read(annotations: Mapping[str, str]) -> tuple[JobOptions, tuple[str, ...]]:
    """Return what *annotations* ask for, and everything that is wrong with them; empty ones ask nothing."""
    fields: dict[str, Any] = {}  # One value each, of the type that its rule makes.
    problems: list[str] = []
    for name, rule in RULES.items():
        value = annotations.get(PREFIX + name, "").strip()
        if not value:
            continue
        try:
            fields[rule.field] = rule.parse(value)
        except ValueError as error:
            problems.append(f"{PREFIX}{name}: {value[:80]!r} {error}")
    return JobOptions(**fields), tuple(problems)
