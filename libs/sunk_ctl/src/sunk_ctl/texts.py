"""Texts that users wrote, for a terminal: one line, and no character that the terminal would obey. Pure."""

from datetime import datetime

from rich.text import Text

from sunk_bus.words import age, safe


def shown(text: str, style: str = "") -> Text:
    """Return *text* as it may be printed. It is never read as markup."""
    return Text(safe(text), style)


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
