"""What a text that leaves the cluster must not hold: passwords, tokens and keys go, the rest stays. Pure.

What must stay true: when in doubt a text goes; each rule is linear in the text, which anyone may have
written; a text that was redacted does not change when it is redacted again.

A password that stands alone in a sentence is not recognised, unless it is long and looks random.
"""

import re
from typing import Final, cast

import msgspec

REDACTED: Final = "[redacted]"
LINE_CHARS: Final = 65536
"""Longer lines end there."""
DEPTH: Final = 64
"""JSON nested deeper than that goes as a whole."""
_WORDS: Final = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|authtok|jwt|credential|bindpw|authorization|cookie"
    r"|(?:api|access|private|secret|signing|auth|encryption|slurm|munge)[_.-]?key)s?"
)
_NAME: Final = re.compile(rf"{_WORDS}\Z", re.IGNORECASE)
"""The end of the name of a setting whose value is secret: ``NATS_PASSWORD``, ``StoragePass``."""
_ASSIGNED: Final = re.compile(
    rf"(?P<name>{_WORDS}\\?[\"']?[ \t]*(?:=>|:=|[:=]))(?P<space>[ \t]*)"
    r"(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\n]*)",
    re.IGNORECASE,
)
"""In a line: a name and its value, in quotes or to the end of the line."""
_OPTION: Final = re.compile(
    r"(?<![\w-])(?P<name>--?[\w-]{1,64})(?![\w-])(?P<space>[ \t]+)(?P<value>[^\s\[]\S*)", re.ASCII
)
"""An option of a command, and its value."""
_SCHEME: Final = re.compile(r"(?P<name>\b(?:Bearer|Basic)[ \t]+)(?P<value>[A-Za-z0-9._~+/=-]{8,})")
_USER: Final = re.compile(r"(?P<name>://)(?P<value>[^\s/@\"'\[]{1,512}@)")
"""User and password in an address."""
_JWT: Final = re.compile(r"eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?", re.ASCII)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_RUN: Final = re.compile(r"(?P<digest>\bsha(?:256|512):)?(?P<run>[A-Za-z0-9+/_=-]{32,})", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]{40,}", re.ASCII)
_SLASHES: Final = 10
"""A path has more than one slash in so many characters, a key in base64 hardly ever has."""
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z ", re.ASCII)
"""In front of a line of a container's log, as Kubernetes has it."""
_OPEN: Final = re.compile(r"(?:.*[\[{(|>:\\][+-]?\d?)?[ \t]*\Z")
"""A value that goes on in the lines below, as YAML and JSON have it."""
_EMPTY: Final = re.compile(r"[\[{(|>]?[+-]?\d?[ \t]*\Z")
"""One of which nothing stands in the line itself."""


def redacted(text: str) -> str:
    """Return *text*, of lines each of which may be JSON, without what is secret."""
    done: list[str] = []
    hidden_below: int | None = None
    """Lines that are indented deeper than that belong to a secret."""
    for whole in _PRIVATE_KEY.sub(REDACTED, text).split("\n"):
        stamp = _STAMP.match(whole)
        start = stamp[0] if stamp else ""
        line = whole[len(start) : LINE_CHARS]
        indent = len(line) - len(line.lstrip())
        if hidden_below is not None and (indent > hidden_below or not line.strip()):
            continue
        hidden_below = indent if (found := _ASSIGNED.search(line)) and _OPEN.match(found["value"]) else None
        done.append(start + _line(line))
        if hidden_below is not None:
            done.append(start + " " * (indent + 2) + REDACTED)
    return "\n".join(done)


def redacted_object(value: object, name: str = "", depth: int = 0) -> object:
    """Return *value*, as JSON has it, without what is secret.

    Args:
        value: Of dicts, lists and scalars.
        name: That of the field that holds it.
        depth: How deep it stands.
    """
    if depth > DEPTH:
        return REDACTED
    found: object = value
    match value:
        case dict():
            fields = cast("dict[str, object]", value)
            found = {key: redacted_object(one, _named(fields, key), depth + 1) for key, one in fields.items()}
        case list():
            found = _items(cast("list[object]", value), name, depth + 1)
        case bool() | None:
            pass
        case _ if is_secret(name):
            found = REDACTED
        case str():
            found = redacted(value)
        case _:
            pass
    return found


def is_secret(name: str) -> bool:
    """Whether a setting of *name* has a value that is secret."""
    return _NAME.search(name[-256:]) is not None


def _items(items: list[object], name: str, depth: int) -> list[object]:
    """Return a list, such as the words of a command, in which a value follows its option."""
    named = [name, *(one if isinstance(one, str) and one.startswith("-") else name for one in items)]
    return [redacted_object(one, before, depth) for one, before in zip(items, named, strict=False)]


def _named(fields: dict[str, object], key: str) -> str:
    """Return what the value under *key* is called: in a list of settings, such as ``env``, its ``name``."""
    return str(fields.get("name", key)) if key == "value" else key


def _line(line: str) -> str:
    if line.lstrip().startswith(("{", "[")):
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return msgspec.json.encode(redacted_object(found)).decode()
    line = _ASSIGNED.sub(_hidden, line)
    line = _OPTION.sub(_unless_harmless, line)
    for rule in (_SCHEME, _USER):
        line = rule.sub(rf"\g<name>{REDACTED}", line)
    return _RUN.sub(_unless_known, _JWT.sub(REDACTED, line))


def _hidden(found: "re.Match[str]") -> str:
    value = found["value"]
    if _EMPTY.match(value):
        return found[0]
    quote = value[0] if value[0] in "\"'" and value[-1] == value[0] and len(value) > 1 else ""
    return f"{found['name']}{found['space']}{quote}{REDACTED}{quote}"


def _unless_harmless(found: "re.Match[str]") -> str:
    return f"{found['name']}{found['space']}{REDACTED}" if is_secret(found["name"]) else found[0]


def _unless_known(found: "re.Match[str]") -> str:
    """Return a long run of characters if it is a name, a path or a digest, and not random."""
    run = found["run"]
    is_mixed = all(any(test(one) for one in run) for test in (str.islower, str.isupper, str.isdigit))
    is_key = is_mixed and run.count("/") * _SLASHES <= len(run)
    is_hex = _HEX.search(run) is not None and not found["digest"]
    return REDACTED if is_key or is_hex else found[0]
