"""What a caller may not read is taken out of texts: names of Pods in other teams' namespaces. Pure.

What must stay true: where it is not clear that a name is a Pod's, it is taken for one. Every text of an
answer in which a service may name Pods goes through here, unless the caller may read Pods in every namespace.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

import msgspec

from sunk_events.view import HIDDEN, PodRow

CHECKED: Final = frozenset({"what", "because", "would_change", "reason", "problem", "in_the_way"})
"""Fields in which services name Pods; the others hold names of Slurm, or what the caller asked for."""
# A namespace is a DNS label, a Pod's name a DNS subdomain. A domain before the slash is an annotation's key.
_POD: Final = re.compile(
    r"(?<![A-Za-z0-9./_-])(?P<namespace>[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)/[A-Za-z0-9][A-Za-z0-9._-]*"
)
_FRACTION: Final = re.compile(r"[0-9]+/[0-9]+")

T = TypeVar("T")
MayRead = Callable[[str], bool]
"""Whether the caller may read Pods in a namespace."""


def namespaces_in(answer: object) -> set[str]:
    """Return every namespace of which *answer* may name a Pod."""
    return set(_namespaces(answer, is_checked=False))


def without(answer: T, may_read: MayRead) -> T:
    """Return *answer* with `HIDDEN` in place of each Pod whose namespace the caller may not read."""
    made: Any = _without(answer, may_read, is_checked=False)
    return made


def hidden(text: str, may_read: MayRead) -> str:
    """Return *text* with `HIDDEN` in place of such Pods."""

    def shown(match: re.Match[str]) -> str:
        is_shown = _FRACTION.fullmatch(match[0]) or may_read(match["namespace"])
        return match[0] if is_shown else HIDDEN

    return _POD.sub(shown, text)


def _without(value: Any, may_read: MayRead, *, is_checked: bool) -> Any:  # noqa: ANN401 - fields have every type
    match value:
        case str():
            return hidden(value, may_read) if is_checked else value
        case tuple():
            items = cast("tuple[Any, ...]", value)
            return tuple(_without(item, may_read, is_checked=is_checked) for item in items)
        case PodRow() if not may_read(value.namespace):
            return _of_another_team(value)
        case msgspec.Struct():
            fields = msgspec.structs.asdict(value).items()
            made = {name: _without(field, may_read, is_checked=name in CHECKED) for name, field in fields}
            return type(value)(**made)
        case _:
            return value


def _of_another_team(row: PodRow) -> PodRow:
    """Return that the Pod is there, and where, without a word of its owner."""
    gang = HIDDEN if row.gang else ""
    return msgspec.structs.replace(row, namespace="", pod=HIDDEN, reason="", gang=gang)


def _namespaces(value: Any, *, is_checked: bool) -> Iterable[str]:  # noqa: ANN401 - fields have every type
    match value:
        case str() if is_checked:
            for match in _POD.finditer(value):
                if not _FRACTION.fullmatch(match[0]):
                    yield match["namespace"]
        case tuple():
            items = cast("tuple[Any, ...]", value)
            for item in items:
                yield from _namespaces(item, is_checked=is_checked)
        case msgspec.Struct():
            if isinstance(value, PodRow) and value.namespace:
                yield value.namespace
            for name, field in msgspec.structs.asdict(value).items():
                yield from _namespaces(field, is_checked=name in CHECKED)
        case _:
            pass
