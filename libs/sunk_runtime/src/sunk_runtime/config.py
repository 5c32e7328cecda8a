"""load(): environment and arguments to one frozen struct, read once at start.

A typo stops the process: a variable with the prefix that names no field is an error, for otherwise it
would silently leave the default in place. An argument wins over its variable.

Source: the documents' arguments, ``--scheduler-name NAME`` (again for more) and ``--slurm-kill-wait 30s``;
durations as Go and Kubernetes write them; OpenTelemetry's standard variables.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import FieldInfo

from sunk_runtime.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)

STANDARD: Final[Mapping[str, str]] = {
    "traces_endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "traces_ratio": "OTEL_TRACES_SAMPLER_ARG",
}
"""Variables that every program understands, for fields whose own are not set."""
_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


class _Given(NamedTuple):
    """A value as it was given, and where."""

    where: str
    text: str


def load(kind: type[T], env: Mapping[str, str], prefix: str, arguments: Sequence[str] = ()) -> T:
    """Build *kind* from the *arguments* and the variables of *env* that start with *prefix*.

    Lists are comma-separated, or the argument is repeated; paths and numbers are text as usual; seconds may
    be written as ``90``, ``90s`` or ``1m30s``.

    Raises:
        ConfigError: names everything that is unknown, missing or not allowed, and what is.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    problems: list[str] = []
    given = {
        **_variables(fields, env, prefix, problems),
        **_arguments(arguments_of(kind), arguments, problems),
    }
    values: dict[str, object] = {}
    for name, field in fields.items():
        if name in given:
            try:
                values[name] = _convert(given[name].text, field)
            except (msgspec.ValidationError, ValueError) as error:
                problems.append(f"{given[name].where}={given[name].text!r}: {error}")
        elif field.required:
            problems.append(f"{prefix}{name.upper()} is missing")
    if problems:
        raise ConfigError("; ".join(problems))
    return kind(**values)


def arguments_of(kind: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """Return the fields of *kind* by their arguments: a list's names one, a duration's leaves out the unit.

    So ``scheduler_names`` is ``--scheduler-name``, and ``slurm_kill_wait_s`` is ``--slurm-kill-wait``; but
    where there is a ``namespace`` too, ``namespaces`` is ``--namespaces``.
    """
    fields = msgspec.structs.fields(kind)
    names = {field.name for field in fields}
    named: dict[str, FieldInfo] = {}
    for field in fields:
        short = field.name
        if _is_list(field):
            short = short.removesuffix("s")
        elif _is_seconds(field):
            short = short.removesuffix("_s")
        name = field.name if short in names else short
        named["--" + name.replace("_", "-")] = field
    return named


def duration_s(text: str) -> float:
    """Return the seconds of a duration as Go and Kubernetes write it: ``30s``, ``1m30s``; bare: seconds.

    Raises:
        ValueError: it is none.
    """
    try:
        seconds = float(text)
    except ValueError:
        found = _DURATION.fullmatch(text.strip())
        if found is None or not text.strip():
            raise ValueError(f"{text!r} must be a duration such as 30s or 1m30s") from None
        hours, minutes, rest, thousandths = (float(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + rest + thousandths / 1000
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} must be a duration such as 30s or 1m30s")
    return seconds


def _variables(
    fields: Mapping[str, FieldInfo], env: Mapping[str, str], prefix: str, problems: list[str]
) -> dict[str, _Given]:
    """Return what the environment gives, by field; an empty variable gives nothing."""
    given: dict[str, _Given] = {}
    for name, variable in STANDARD.items():
        if name in fields and env.get(variable):
            given[name] = _Given(variable, env[variable])
    unknown: list[str] = []
    for variable in sorted(env):
        name = variable.removeprefix(prefix).lower()
        if not variable.startswith(prefix) or env[variable] == "":
            continue
        if name in fields and variable == prefix + name.upper():
            given[name] = _Given(variable, env[variable])
        else:
            unknown.append(variable)
    if unknown:
        known = ", ".join(prefix + name.upper() for name in fields)
        problems.append(f"unknown settings: {', '.join(unknown)}; known: {known}")
    return given


def _arguments(
    named: Mapping[str, FieldInfo], arguments: Sequence[str], problems: list[str]
) -> dict[str, _Given]:
    """Return what the arguments give, by field; a list's argument may come again."""
    given: dict[str, _Given] = {}
    unknown: list[str] = []
    for name, value in _pairs(arguments, named):
        field = named.get(name)
        if field is None:
            unknown.append(name)
        elif value is None:
            problems.append(f"{name} needs a value")
        elif field.name in given and _is_list(field):
            given[field.name] = _Given(name, f"{given[field.name].text},{value}")
        else:
            given[field.name] = _Given(name, value)
    if unknown:
        problems.append(f"unknown arguments: {' '.join(unknown)}; known: {' '.join(named)}")
    return given


def _pairs(arguments: Sequence[str], named: Mapping[str, FieldInfo]) -> Iterator[tuple[str, str | None]]:
    """Yield each argument with its value, after ``=`` or as the next; a flag's may be left out."""
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if equals:
            yield name, value
        elif name in named and named[name].type is bool:
            yield name, "true"
        elif name in named:
            yield name, rest.pop(0) if rest and not rest[0].startswith("--") else None
        else:
            yield name, None


def _convert(text: str, field: FieldInfo) -> object:
    """Convert *text* to the field's type."""
    value: object = text
    if _is_list(field):
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif _is_seconds(field):
        seconds = duration_s(text)
        value = int(seconds) if seconds.is_integer() else seconds
    return msgspec.convert(value, field.type, strict=False, dec_hook=_path)


def _is_list(field: FieldInfo) -> bool:
    return "tuple[" in str(field.type)


def _is_seconds(field: FieldInfo) -> bool:
    return field.name.endswith("_s")


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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
