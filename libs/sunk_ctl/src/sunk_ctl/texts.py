"""Texts that users wrote, for a terminal: one line, and no character that the terminal would obey. Pure."""

import json
from datetime import datetime

import msgspec
from rich.text import Text

from sunk_bus.words import age, safe


def shown(text: str, style: str = "") -> Text:
    """Return *text* as it may be printed. It is never read as markup."""
    return Text(safe(text), style)


def as_json(found: object) -> str:
    """Return *found* as JSON of several lines; a terminal obeys nothing of it, and programs read the same."""
    return _printable(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def json_line(found: object) -> str:
    """Return *found* as JSON of one line, as `as_json`."""
    return _printable(msgspec.json.encode(found).decode())


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def since(moment: datetime | None, now: datetime) -> str:
    """Return how long ago *moment* was; nothing if it is not known."""
    return age(moment, now) if moment is not None else ""


def until(moment: datetime | None, now: datetime) -> str:
    """Return in how long *moment* is; nothing if it is not known."""
    if moment is None:
        return ""
    return f"in {age(now, moment)}" if moment > now else "now"


def counted(counts: dict[str, int]) -> str:
    """Return ``12 idle, 3 drained``; ``none`` if there is nothing."""
    return ", ".join(f"{count} {safe(word)}" for word, count in counts.items()) or "none"
