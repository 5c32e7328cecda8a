"""What a text that leaves the cluster must not hold: passwords, tokens and keys go, the rest stays. Pure.

What must stay true: a known secret is nowhere in what comes out, in none of its forms; when in doubt a text
goes; the work is bounded by the length of a text, which anyone may have written; no text is an error; one
that was redacted does not change when it is redacted again.

A password that is not known and stands alone in a sentence is not recognised, unless it is long and looks
random.
"""

import re
from collections.abc import Iterable
from typing import Final, cast

import msgspec

from sunk_ctl.secret_lines import LINE_CHARS, Below
from sunk_ctl.secret_names import REFERENCES, is_secret, name_of
from sunk_ctl.secret_words import REDACTED, without_words

DEPTH: Final = 64
"""JSON nested deeper than that goes as a whole, also where it stands in strings of JSON."""
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}(?P<kind>PRIVATE KEY|NKEY SEED)(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z ]{0,40}(?P=kind)(?: BLOCK)?-----|\Z)-*",
    re.DOTALL,
)
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) ", re.ASCII)
"""In front of a line of a container's log, as Kubernetes has it."""


class Redactor:
    """Redacts by the *known* secrets, each in every form in which a text may hold it, and by patterns."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: Final = sorted({one for one in known if one}, key=len, reverse=True)

    def text(self, text: str, depth: int = 0) -> str:
        """Return *text*, of lines each of which may be JSON, without what is secret."""
        if depth > DEPTH:
            return REDACTED
        text = _PRIVATE_KEY.sub(REDACTED, self._without_known(text.replace("\r\n", "\n")))
        done: list[str] = []
        below = Below()
        for whole in text.split("\n"):
            stamp = _STAMP.match(whole)
            start = stamp[0] if stamp else ""
            line = whole[len(start) : len(start) + LINE_CHARS]
            if below.hides(line):
                continue
            shown = self._line(line, is_whole=len(start) + len(line) == len(whole), depth=depth)
            done.append(start + (shown if shown is not None else without_words(below.of(line))))
            if below.is_marked:
                done.append(f"{start}{below.mark}{REDACTED}")
        return "\n".join(done)

    def value(self, value: object, name: str = "", depth: int = 0) -> object:
        """Return *value*, as JSON has it, without what is secret.

        Args:
            value: Of dicts, lists and scalars.
            name: That of the field that holds it.
            depth: How deep it stands.
        """
        found: object = value
        match value:
            case dict() | list() if depth > DEPTH:
                found = REDACTED
            case dict():
                found = self._fields(cast("dict[str, object]", value), name, depth + 1)
            case list():
                found = self._items(cast("list[object]", value), name, depth + 1)
            case bool() | None:
                pass
            case _ if is_secret(name):
                found = REDACTED
            case str():
                found = self.text(value, depth + 1)
            case _:
                pass
        return found

    def _fields(self, fields: dict[str, object], name: str, depth: int) -> dict[str, object]:
        """Return an object; below a secret name only references to secrets stay."""
        return {
            self._without_known(key): self.value(one, _named(fields, key, name), depth)
            for key, one in fields.items()
        }

    def _items(self, items: list[object], name: str, depth: int) -> list[object]:
        """Return a list, such as the words of a command, in which a value follows its option."""
        named = [name, *(one if isinstance(one, str) and one.startswith("-") else name for one in items)]
        return [self.value(one, before, depth) for one, before in zip(items, named, strict=False)]

    def _line(self, line: str, *, is_whole: bool, depth: int) -> str | None:
        """Return a line that is JSON, redacted; None if it is none."""
        text = line.lstrip()
        if not text.startswith(("{", "[")) or text.startswith(REDACTED):
            return None
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None if is_whole else REDACTED
        return msgspec.json.encode(self.value(found, depth=depth + 1)).decode()

    def _without_known(self, text: str) -> str:
        for one in self._known:
            text = text.replace(one, REDACTED)
        return text


def _named(fields: dict[str, object], key: str, name: str) -> str:
    """Return what the value under *key* is called; below a secret *name* all but references are secret."""
    own = name_of(fields, key)
    return name if own == key and is_secret(name) and key not in REFERENCES else own
