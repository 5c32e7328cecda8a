"""Headers as they go over the wire, and what is asked by them."""

import re
from typing import Final

VERSION: Final = b"NATS/1.0"
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_S: Final = 1_000_000_000


def parse(raw: bytes) -> dict[str, str]:
    """Return the headers by name; what is none is left out."""
    found: dict[str, str] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name.decode(), value.decode("utf-8", "surrogateescape").strip())
    return found


def render(headers: dict[str, str], status: str = "") -> bytes:
    """Return *headers* as they go over the wire, behind *status*, such as ``404 No Messages``."""
    first = VERSION + (b" " + status.encode() if status else b"")
    lines = [first, *(f"{name}: {value}".encode() for name, value in headers.items())]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def ttl_ns(text: str) -> int | None:
    """Return how long a message with this ``Nats-TTL`` is kept; 0: for ever; None: that is no such thing."""
    if text == "never":
        return 0
    if text.isdigit():
        seconds = float(text)
    else:
        parts = _PART.findall(text)
        if "".join(number + unit for number, unit in parts) != text:
            return None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return round(seconds * _S) if seconds >= 1 else None


def duration(ns: int) -> str:
    """Return a time as Go writes it: ``1h0m0s``."""
    seconds = ns // _S
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
