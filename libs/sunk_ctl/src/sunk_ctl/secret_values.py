"""The secrets of a cluster: what a Secret of Kubernetes holds, in each form that a text may have. Pure.

Short values and plain words, such as names of users and databases, are no secrets.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast
from urllib.parse import quote, quote_plus

import msgspec

from sunk_ctl.secret_lines import LINE_CHARS, values_in
from sunk_ctl.secret_names import is_secret, name_of

KNOWN_MAX: Final = 2000
"""Forms that are looked for in all texts."""
_CHARS: Final = 8
_SECRET_CHARS: Final = 6
"""Where the key itself says that its value is secret."""
_LINE: Final = 12
"""Lines of a longer value that are shorter are no secrets by themselves."""
_BINARY_MAX: Final = 128
"""Longer values in base64 or hexadecimal look random, and go by that."""
_WORD: Final = re.compile(r"[a-z][a-z.-]{0,15}|[\d.:]+", re.ASCII)
"""What Secrets hold besides secrets."""
_HARMLESS: Final = re.compile(
    r"(?:.*[_.-])?(?:crt|pub|db|database|dbname|host|hostname|user|username|port)", re.IGNORECASE
)
"""Keys whose values are no secrets."""
_END: Final = re.compile(r"[^\s#;,}\]]+")
_ADDRESS: Final = re.compile(r"://[^\s/@\"':]{0,256}:(?P<password>[^\s@\"']{1,256})@")


def forms(data_by_key: Mapping[str, object]) -> set[str]:
    """Return the values of a Secret, its ``data``, in every form in which a text may hold them; no words."""
    found: set[str] = set()
    for key, encoded in data_by_key.items():
        try:
            data = base64.b64decode(str(encoded))
        except ValueError:
            continue
        if not _HARMLESS.fullmatch(key):
            text = data.decode(errors="ignore").replace("\r\n", "\n").strip()
            found.update(*(_written(value) for value in _values(key, text)))
            if _is_any(key, text):
                found.update(*(_encoded(one) for one in (data, text.encode())))
    return found


def _values(key: str, text: str) -> Iterator[str]:
    """Yield a value as a whole, and what in it may be a secret by itself."""
    if _is_any(key, text):
        yield text
    inner = [*_strings(text), *_settings(text), *(one["password"] for one in _ADDRESS.finditer(text))]
    yield from (value for value in inner if len(value) >= _SECRET_CHARS)
    if "\n" in text:
        lines = (line.strip() for line in text.splitlines())
        yield from (line for line in lines if len(line) >= _LINE and not _WORD.fullmatch(line))


def _is_any(key: str, text: str) -> bool:
    if is_secret(key):
        return len(text) >= _SECRET_CHARS
    return len(text) >= _CHARS and not _WORD.fullmatch(text)


def _written(value: str) -> set[str]:
    go = "".join(f"\\u{ord(one):04x}" if one in "&<>" else one for one in json.dumps(value)[1:-1])
    return {value, json.dumps(value)[1:-1], go, quote(value, safe=""), quote_plus(value)}


def _encoded(data: bytes) -> set[str]:
    if len(data) > _BINARY_MAX or len(data) < _SECRET_CHARS:
        return set()
    encoded = {base64.b64encode(data), base64.urlsafe_b64encode(data)}
    return {*(one.decode().rstrip("=") for one in encoded), data.hex(), data.hex().upper()}


def _strings(text: str) -> Iterator[str]:
    """Yield the secrets in a text of JSON, such as the passwords of registries, or a set of keys."""
    try:
        found: list[object] = [msgspec.json.decode(text)]
    except (msgspec.DecodeError, RecursionError):
        return
    while found:
        one = found.pop()
        if isinstance(one, list):
            found.extend(cast("list[object]", one))
        elif isinstance(one, dict):
            fields = cast("dict[str, object]", one)
            found.extend(fields.values())
            for name, value in fields.items():
                if isinstance(value, str) and is_secret(name_of(fields, name)):
                    yield value


def _settings(text: str) -> Iterator[str]:
    """Yield the values in a file of settings whose names say that they are secret."""
    for line in text.splitlines():
        for one in values_in(line[:LINE_CHARS]):
            yield line[one.start : one.end].strip()
            if alone := _END.match(line, one.start, one.end):
                yield alone[0]
