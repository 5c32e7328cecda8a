"""What looks like a secret wherever it stands in a line: tokens, keys, passwords of commands. Pure."""

import re
from collections.abc import Callable
from typing import Final

from sunk_ctl.secret_names import is_secret

REDACTED: Final = "[redacted]"
_OPTION: Final = re.compile(
    r"(?<![\w-])(?P<name>--?[\w-]{1,64})(?![\w-])(?P<space>[ \t]+)(?P<value>(?!\[redacted\])\S+)", re.ASCII
)
"""An option of a command, and its value."""
_AFTER: Final = tuple(
    re.compile(rf"(?P<name>{name})(?P<value>{value})")
    for name, value in (
        (r"\b(?:Bearer|Basic|Negotiate)[ \t]+", r"[A-Za-z0-9._~+/=-]{8,}"),
        (r"://", r"(?!\[redacted\]@)(?:[^\s/@\"':]{1,256}|[^\s/@\"':]{0,256}:[^\s@\"']{1,256})@"),
        (r"(?i:\bIDENTIFIED (?:BY|VIA)[ \t]+)(?:PASSWORD[ \t]+)?", r"['\"][^'\"]*['\"]"),
        (r"\b(?:mysql|mariadb)[\w-]{0,16}\b[^\n|;&]{0,256}?[ \t]-p(?=\S)", r"(?!\[redacted\])[^\s-]\S*"),
        (r"(?<![\w-])(?:-u|--user)[ =\t]+[^\s:\"']{1,64}:", r"(?!\[redacted\])[^\s\"']+"),
        (r"(?i:<(?:\w{0,32}password|secret|token)>)", r"[^<\n]*(?=</)"),
    )
)
"""Values that follow something."""
_TOKENS: Final = re.compile(
    r"(?<![\w-])eyJ[\w-]{5,8192}\.[\w-]{1,16384}(?:\.[\w-]{0,8192})?"  # A JSON Web Token.
    r"|\bS[UAONCX][A-Z2-7]{54,60}\b"  # The seed of a key of NATS.
    r"|\$(?:\d[a-z]?|y|apr1|argon2\w{1,2})\$[^\s\"':]{8,}",  # A password as crypt(3) has it.
    re.ASCII,
)
_RUN: Final = re.compile(
    r"(?P<known>\bsha(?:256|512):|\bcontainerd://)?(?P<run>[A-Za-z0-9+/_-]{32,}={0,2})", re.ASCII
)
_HEX: Final = re.compile(r"[0-9A-Fa-f]{40,}", re.ASCII)
_PARTS: Final = re.compile(r"[/_-]")
_LETTERS: Final = 12
"""A name or a path has more than one ``/``, ``_`` or ``-`` in so many characters, a key hardly ever has."""


def without_words(line: str) -> str:
    """Return *line* without what looks like a secret."""
    line = _OPTION.sub(_unless_harmless, line)
    for rule in _AFTER:
        line = rule.sub(_value, line)
    return _RUN.sub(_unless_known, _TOKENS.sub(REDACTED, line))


def _value(found: "re.Match[str]") -> str:
    end = "@" if found["value"].endswith("@") and found["name"].endswith("://") else ""
    return f"{found['name']}{REDACTED}{end}"


def _unless_harmless(found: "re.Match[str]") -> str:
    return f"{found['name']}{found['space']}{REDACTED}" if is_secret(found["name"]) else found[0]


def _unless_known(found: "re.Match[str]") -> str:
    """Return a long run of characters if it is a name, a path or a digest, and not random."""
    run = found["run"]
    tests: tuple[Callable[[str], bool], ...] = (str.islower, str.isupper, str.isdigit)
    is_mixed = all(any(test(one) for one in run) for test in tests)
    is_key = is_mixed and len(_PARTS.findall(run)) * _LETTERS <= len(run)
    is_hex = _HEX.search(run) is not None
    return REDACTED if not found["known"] and (is_key or is_hex) else found[0]
