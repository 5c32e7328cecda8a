"""Values whose names say that they are secret, in lines of YAML, JSON, ini files, shells, sentences. Pure."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from sunk_ctl.secret_names import is_secret
from sunk_ctl.secret_words import REDACTED

LINE_CHARS: Final = 65536
"""Longer lines end there."""
_ASSIGNED: Final = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]{1,512})(?:\\{0,8}[\"'])?[ \t]{0,64}"
    r"(?:=>|:=|%3D|[:=]|(?<=[\"']),)[ \t]{0,64}",
    re.ASCII,
)
_PAIR: Final = re.compile(
    r"\bname\\{0,8}[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\{0,8}[\"']?(?P<name>[\w.-]{1,512})\\{0,8}[\"']?"
    r"[ \t]{0,8}[,;]?[ \t]{0,8}\\{0,8}[\"']?value\\{0,8}[\"']?[ \t]{0,8}[:=][ \t]{0,8}",
    re.ASCII | re.IGNORECASE,
)
"""A name and a value as fields of their own, as in ``env`` of a container."""
_NAME_LINE: Final = re.compile(
    r"[ \t]*(?:-[ \t]+)?[\"']?name[\"']?[ \t]*:[ \t]*[\"']?(?P<name>[\w.-]{1,512})[\"']?,?[ \t]*\Z", re.ASCII
)
_VALUE_LINE: Final = re.compile(r"[ \t]*[\"']?value[\"']?[ \t]*:[ \t]*", re.ASCII)
_QUOTE: Final = re.compile(r"\\{0,8}(?:\"\"\"|'''|[\"'])")
_INDENT: Final = " \t\"'{[-"
_EXPORT: Final = re.compile(r"(?:export|set|setenv|ENV|declare|-e|env)[ \t\"']{1,16}", re.IGNORECASE)
"""What may stand before a setting in its line; after anything else the line is a sentence."""
_PROSE: Final = re.compile(r"[A-Za-z]{2,}(?: [A-Za-z]{2,}| [\"'])|(?:YES|NO)\)")
_EMPTY: Final = re.compile(r"(?:[|>][+-]?\d?[+-]?|[\[{(])?[ \t]*(?:#.*)?\Z")
"""A value of which nothing stands in the line itself."""
_QUOTED_LINES: Final = 50
"""So many lines of a quoted value that does not end are hidden."""


class Value(NamedTuple):
    """Where the value of a secret stands in a line."""

    name: int
    """Where its name begins."""
    start: int
    end: int
    """Inside its quotes, or at the end of the line."""
    quote: str = ""
    """In which it stands, if it does not end in this line."""


class Below:
    """What the lines that follow a secret have to do with it."""

    def __init__(self) -> None:
        self._indent: int | None = None
        """Lines that are indented deeper belong to the secret."""
        self._has_items = False
        """Items of a list at the same indent do so too."""
        self._quote = ""
        """The value goes on until this."""
        self._quoted = 0
        self._is_next = False
        self._is_named = False
        """The line before names a secret whose value may follow."""
        self.is_marked = False
        """The value stands in the lines below alone: a mark stands for them."""
        self.mark = ""

    def hides(self, line: str) -> bool:
        """Whether *line* belongs to a secret of a line before."""
        self.is_marked = False
        if self._quote:
            self._quoted += 1
            if self._quote in line or self._quoted > _QUOTED_LINES:
                self._quote = ""
            return True
        if self._is_next:
            self._is_next = line.rstrip().endswith("\\")
            return True
        if self._indent is not None:
            is_item = self._has_items and line.lstrip().startswith("-") and _indent(line) == self._indent
            if _indent(line) > self._indent or not line.strip() or is_item:
                return True
            self._indent = None
        return False

    def of(self, line: str) -> str:
        """Return *line* without the values of secrets; keep what the next lines need."""
        was_named, self._is_named = self._is_named, False
        found = list(values_in(line))
        if was_named and (value := _VALUE_LINE.match(line)):
            found = [_value(line, value.start(), value.end())]
        elif (name := _NAME_LINE.match(line)) and is_secret(name["name"]):
            self._is_named = True
        for one in reversed(found):
            self._follow(line, one)
            if one.quote or not _EMPTY.match(line, one.start):
                line = f"{line[: one.start]}{REDACTED}{line[one.end :]}"
        return line

    def _follow(self, line: str, value: Value) -> None:
        """Note what of *value* stands in the lines that follow."""
        if value.quote:
            self._quote, self._quoted = value.quote, 0
        elif line[value.start : value.end].rstrip().endswith("\\"):
            self._is_next = True
        elif value.end == len(line) and _is_start(line, value.name, _first(line)):
            self._indent = _indent(line)
            self._has_items = self.is_marked = _EMPTY.match(line, value.start) is not None
            self.mark = " " * (self._indent + 2)


def values_in(line: str) -> Iterator[Value]:
    """Yield the values of secrets in *line*."""
    at = 0
    first = _first(line)
    found = [*_ASSIGNED.finditer(line), *_PAIR.finditer(line)]
    for one in sorted(found, key=lambda one: one.start()):
        if (
            one.start() < at
            or not is_secret(one["name"])
            or line.startswith("/", one.start() - 1, one.start())
        ):
            continue
        value = _value(line, one.start(), one.end())
        if not _is_start(line, one.start(), first) and _PROSE.match(line, value.start):
            continue
        yield value
        at = value.end


def _first(line: str) -> int:
    """Return where the first word of *line* begins."""
    return len(line) - len(line.lstrip(_INDENT))


def _is_start(line: str, start: int, first: int) -> bool:
    """Whether a name at *start* is the setting of its line, and not a word of a sentence."""
    return start <= first or _EXPORT.fullmatch(line, first, start) is not None


def _value(line: str, name: int, at: int) -> Value:
    """Return the value at *at*, whose name begins at *name*."""
    quote = _QUOTE.match(line, at)
    if quote is None:
        return Value(name, at, len(line))
    end = _end_of_quote(line, quote)
    return Value(name, quote.end(), end) if end >= 0 else Value(name, quote.end(), len(line), quote[0])


def _end_of_quote(line: str, quote: "re.Match[str]") -> int:
    """Return where the quoted value ends; -1 if not in this line."""
    mark = quote[0]
    at = line.find(mark, quote.end())
    while at > 0 and mark in "\"'" and _slashes(line, at) % 2:
        at = line.find(mark, at + 1)
    return at


def _slashes(line: str, at: int) -> int:
    return at - len(line[:at].rstrip("\\"))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
