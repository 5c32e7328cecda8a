"""The secrets of a cluster: what a Secret of Kubernetes holds, in each form that a text may have. Pure.

Short values and plain words, such as names of users and databases, are no secrets.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast
from urllib.parse import quote

import msgspec

from sunk_ctl.secret_lines import values_in
from sunk_ctl.secret_names import is_secret

KNOWN_MAX: Final = 1000
"""Forms that are looked for in all texts."""
_CHARS: Final = 8
_LINE_CHARS: Final = 65536
_WORD: Final = re.compile(r"[a-z][a-z.-]{0,15}|[\d.:]+", re.ASCII)
"""What Secrets hold besides secrets."""


def forms(data_by_key: Mapping[str, object]) -> set[str]:
    """Return the values of a Secret, its ``data``, in every form in which a text may hold them; no words."""
    found: set[str] = set()
    for key, encoded in data_by_key.items():
        try:
            data = base64.b64decode(str(encoded))
        except ValueError:
            continue
        text = data.decode(errors="ignore").strip()
        values = {text, *_settings(text), *_strings(text)} if "\n" in text or text[:1] in "{[" else {text}
        for value in values:
            if len(value) >= _CHARS and (is_secret(key) or not _WORD.fullmatch(value)):
                found |= {value, json.dumps(value)[1:-1], quote(value, safe="")}
        if len(data) >= _CHARS and not _WORD.fullmatch(text):
            found |= {base64.b64encode(data).decode().rstrip("="), data.hex()}
            found.add(base64.urlsafe_b64encode(data).decode().rstrip("="))
    return found


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
                if isinstance(value, str) and (is_secret(name) or (name == "k" and "kty" in fields)):
                    yield value


def _settings(text: str) -> Iterator[str]:
    """Yield the values in a file of settings whose names say that they are secret."""
    for line in text.splitlines():
        yield from (line[start:end] for _, start, end in values_in(line[:_LINE_CHARS]) if end > start)
