"""What a caller may not read is taken out of texts: other teams' Pods, and what is said of them. Pure.

What must stay true: where it is not clear that a word with a slash is no Pod's, it is taken for one, and so
is what follows kubectl's verb where it names a namespace. Of a Pod that is hidden no free text is left: the
API server writes more names into it. Every text of an answer in which a service may name Pods goes through
here, unless the caller may read Pods in every namespace.
"""

import re
from collections.abc import Callable, Iterable
from operator import is_not
from typing import Any, Final, TypeVar, cast

import msgspec

from sunk_events.base import REASON_MAX
from sunk_events.requests import Finding
from sunk_events.view import HIDDEN, EventRow, JobRow, PodRow

CHECKED: Final = frozenset({"what", "because", "would_change", "reason", "problem", "in_the_way", "details"})
"""Fields in which services name Pods; the others hold names of Slurm, or what the caller asked for."""
_NAME_OF_JOB: Final = "name"
CHECKED_OF_JOBS: Final = CHECKED | {_NAME_OF_JOB}
EVERY: Final = ""
"""In place of a namespace: which one it is, is not clear. Only a caller who may read all may read it."""
TAG: Final = " (sunk:verify-undrain)"
"""Ends the reason of a drain by a failed lock, after a text of Pods that may be cut at 512 characters."""
TAGGED_CHARS: Final = 500
_METHOD: Final = r"(?:(?:get|list|watch|create|post|put|patch|delete|Pod) )?"
_BEGINS: Final = r"(?<![A-Za-z0-9._~-])"
"""Without it a long word would be read again from each of its letters: users write some of these texts."""
_NAME: Final = re.compile(rf"{_BEGINS}{_METHOD}(?P<word>[A-Za-z0-9._~-]*/[A-Za-z0-9._~/-]*)")
# A command takes the text up to its end, whatever it holds: text that users write is read once, and no more.
_COMMAND: Final = r"(?P<verb>kubectl (?:[a-z]+ |(?=-)))(?P<words>[^;]*)"
_WORD: Final = re.compile(rf"{_BEGINS}(?:{_COMMAND}|{_NAME.pattern})")
_OPTION: Final = re.compile(r"(?<![^ ])(?:-n|--namespace)[ =]?(?P<namespace>[^ ,]*)")
_NONE: Final = re.compile(r"no (?P<kind>Pod|NodeSet) (?P<word>[^ /]+/[^ ]+)( exists)?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_POD: Final = re.compile(rf"(?P<namespace>{_NAMESPACE.pattern})/[A-Za-z0-9][A-Za-z0-9._-]*")
_IN_PATH: Final = re.compile(r"(?:^|/)namespaces/(?P<namespace>[a-z0-9-]+)(?:/[A-Za-z0-9._~/-]*)?$")
# Keys of annotations and taints, files that name no Pod, abbreviations, and what Slurm says of GPUs.
_OTHER: Final = re.compile(
    r"([a-z0-9-]+\.)+(com|io|org|net)/[A-Za-z0-9][A-Za-z0-9._-]*"
    r"|/(dev|etc|proc|run|sys|usr|var/run)(/[A-Za-z0-9._-]+)*|/[a-z]*|[A-Z]+/[A-Z]+|n/a|gres/gpu"
)
_NEXT: Final = re.compile(r", (?=[A-Za-z0-9._~-]*/)")
_ITEM: Final = re.compile(r"([A-Za-z0-9.-]+: )?[a-z0-9-]+/[A-Za-z0-9._-]+(: |, |$)")
_BETWEEN: Final = "; "
_QUEUE: Final = re.compile(r"place \d+( to \d+)? of \d+ in the queue of ")

T = TypeVar("T")
MayRead = Callable[[str], bool]
"""Whether the caller may read Pods in a namespace."""


def namespaces_in(answer: object) -> set[str]:
    """Return every namespace of which *answer* may name a Pod, and `EVERY` where that is not clear."""
    return set(_namespaces(answer, is_checked=False))


def without(answer: T, may_read: MayRead) -> T:
    """Return *answer* with `HIDDEN` in place of each Pod whose namespace the caller may not read."""
    made: Any = _without(answer, may_read, is_checked=False)
    return made


def hidden(text: str, may_read: MayRead) -> str:
    """Return *text* with `HIDDEN` in place of such Pods, and of what is said of each."""
    if not _may_name(text):
        return text
    if _is_cut(text) and not may_read(EVERY):
        text = text.removesuffix(TAG)
        text = f"{text[: max(text.rfind(' '), 0)]} ..."
    made: list[str] = []
    is_of_hidden = False
    for segment in text.split(_BETWEEN):
        if is_of_hidden and not _ITEM.match(segment):
            continue  # It may be more of what is said of the hidden Pod.
        shown, is_of_hidden = _shown(segment, may_read)
        made.append(shown)
    return _BETWEEN.join(made)


def without_jobs_ahead(found: Finding) -> Finding:
    """Return *found* without the jobs ahead in Slurm's queue: an older syncer always names them."""
    is_named = _QUEUE.match(found.what) and "ahead: " in found.because
    return msgspec.structs.replace(found, because="") if is_named else found


def _shown(segment: str, may_read: MayRead) -> tuple[str, bool]:
    """Return what may be shown, and whether free text of a hidden Pod was left out."""
    none = _NONE.fullmatch(segment)
    if none and not all(map(may_read, _of_word(none["word"]))):
        return f"no such {none['kind']} exists", False
    shown, position = "", 0
    while match := _WORD.search(segment, position):
        shown += segment[position : match.start()]
        position = match.end()
        if all(map(may_read, _of_match(match))):
            shown += match[0]
            continue
        shown += f"{match['verb'] or ''}{HIDDEN}"
        rest = segment[position:]
        if match["verb"]:
            return shown, True
        if rest and rest != ")" and not _NEXT.match(rest):
            return shown, True
    return shown + segment[position:], False


def _of_match(match: re.Match[str]) -> tuple[str, ...]:
    """Return of which namespaces a match of `_WORD` may be."""
    if (words := match["words"]) is None:
        return _of_word(match["word"])
    options = [found["namespace"] for found in _OPTION.finditer(words)]
    named = [namespace for found in _NAME.finditer(words) for namespace in _of_word(found["word"])]
    return (*(one if _NAMESPACE.fullmatch(one) else EVERY for one in options), *named)


def _of_word(word: str) -> tuple[str, ...]:
    """Return of which namespaces *word*, which has a slash, may be."""
    whole = word.rstrip(".")
    if _OTHER.fullmatch(whole):
        return ()
    match = _POD.fullmatch(whole) or _IN_PATH.search(whole)
    return (match["namespace"],) if match else (EVERY,)


def _may_name(text: str) -> bool:
    """Whether *text* may name a Pod."""
    return "/" in text or "kubectl " in text or _is_cut(text)


def _is_cut(text: str) -> bool:
    """Whether *text* may end within a name."""
    return len(text) >= REASON_MAX or (len(text) >= TAGGED_CHARS and text.endswith(TAG))


def _in_text(text: str) -> Iterable[str]:
    if _is_cut(text):
        yield EVERY
    for match in _WORD.finditer(text):
        yield from _of_match(match)


def _without(value: Any, may_read: MayRead, *, is_checked: bool) -> Any:  # noqa: ANN401 - fields have every type
    """Return *value*, itself where nothing in it is hidden: whole tables go through here."""
    match value:
        case str():
            return hidden(value, may_read) if is_checked else value
        case tuple():
            items = cast("tuple[Any, ...]", value)
            made = tuple([_without(item, may_read, is_checked=is_checked) for item in items])
            return made if any(map(is_not, made, items)) else items
        case PodRow() if not may_read(value.namespace):
            return _of_another_team(value)
        case EventRow() if value.namespace and not may_read(value.namespace):
            return msgspec.structs.replace(value, namespace="", name=HIDDEN, details=())
        case msgspec.Struct():
            found = {
                name: _without(field, may_read, is_checked=is_field_checked)
                for name, field, is_field_checked in _worth_a_look(value)
            }
            return msgspec.structs.replace(value, **found) if found else value
        case _:
            return value


def _worth_a_look(value: msgspec.Struct) -> Iterable[tuple[str, Any, bool]]:
    """Yield those fields of *value* in which Pods may be named, and whether their texts are checked."""
    checked = _checked(value)
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if isinstance(field, str):
            if name in checked and ("/" in field if name == _NAME_OF_JOB else _may_name(field)):
                yield name, field, True
        elif field and isinstance(field, (tuple, msgspec.Struct)):
            yield name, field, name in checked


def _checked(value: msgspec.Struct) -> frozenset[str]:
    """Return the fields of *value* that may name Pods: a placeholder job has the name of its Pod."""
    return CHECKED_OF_JOBS if isinstance(value, JobRow) else CHECKED


def _of_another_team(row: PodRow) -> PodRow:
    """Return that the Pod is there, and where, without a word of its owner.

    Its job's number would lead to its owner, by the list of jobs.
    """
    gang = HIDDEN if row.gang else ""
    return msgspec.structs.replace(row, namespace="", pod=HIDDEN, reason="", gang=gang, job=None)


def _namespaces(value: Any, *, is_checked: bool) -> Iterable[str]:  # noqa: ANN401 - fields have every type
    match value:
        case str() if is_checked:
            yield from _in_text(value)
        case tuple():
            items = cast("tuple[Any, ...]", value)
            for item in items:
                yield from _namespaces(item, is_checked=is_checked)
        case msgspec.Struct():
            if isinstance(value, (EventRow, PodRow)) and value.namespace:
                yield value.namespace
            for name, field, is_field_checked in _worth_a_look(value):
                if name == _NAME_OF_JOB and isinstance(value, JobRow) and not value.is_placeholder:
                    yield EVERY  # Its user chose the name: it may look like that of a Pod anywhere.
                else:
                    yield from _namespaces(field, is_checked=is_field_checked)
        case _:
            pass
