"""load(): environment and arguments to one frozen struct, read once at start.

A typo stops the process: a variable with the prefix that names no field is an error, for otherwise it
would silently leave the default in place.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from sunk_runtime.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)


def load(kind: type[T], env: Mapping[str, str], prefix: str) -> T:
    """Build *kind* from the variables of *env* that start with *prefix*.

    Lists are comma-separated, paths and numbers are text as usual.

    Raises:
        ConfigError: names every variable that is unknown, missing or not allowed, and what is.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    given = {
        name.removeprefix(prefix).lower(): value
        for name, value in env.items()
        if name.startswith(prefix) and value != ""
    }
    if unknown := sorted(given.keys() - fields.keys()):
        raise ConfigError(
            f"unknown settings: {', '.join(prefix + name.upper() for name in unknown)}; "
            f"known: {', '.join(prefix + name.upper() for name in fields)}"
        )
    problems: list[str] = []
    values: dict[str, object] = {}
    for name, field in fields.items():
        variable = prefix + name.upper()
        if name in given:
            try:
                values[name] = _convert(given[name], field.type)
            except msgspec.ValidationError as error:
                problems.append(f"{variable}={given[name]!r}: {error}")
        elif field.required:
            problems.append(f"{variable} is missing")
    if problems:
        raise ConfigError("; ".join(problems))
    return kind(**values)


def _convert(text: str, kind: object) -> object:
    """Convert *text*, splitting it at commas where the field is a list."""
    try:
        return msgspec.convert(text, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError:
        if "tuple" not in str(kind):
            raise
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return msgspec.convert(parts, kind, strict=False, dec_hook=_path)


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)


def read_table(path: Path, kind: type[T]) -> T:
    """Read a mounted JSON file into *kind*.

    Raises:
        ConfigError: the file is missing, is not JSON, or a field is wrong; names the file and the field.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
