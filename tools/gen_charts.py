"""Writes the table of values into each chart's README, and what keys mean into its schema.

The table is made of the comments of values.yaml: a comment right above a key describes it; what a key has
below it is described with it, unless it has comments of its own. `--check` writes nothing, and fails where a
README or a schema is stale, or a value or a key of a schema is undescribed.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import schema_descriptions
import yaml
from settings_schema import SCHEMA, with_settings

CHARTS: Final = Path(__file__).parents[1] / "helm"
_BEGIN: Final = "<!-- values: written by ./task gen from values.yaml -->\n"
_END: Final = "<!-- end of values -->\n"
_KEY: Final = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][\w]*):")


@dataclass(frozen=True)
class Value:
    """One row of the table."""

    path: tuple[str, ...]
    default: Any
    meaning: str


def described(text: str) -> Iterator[Value]:
    """Yield every key of a values.yaml that has a comment right above it, in order."""
    defaults = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if line.lstrip().startswith("# "):
            comment.append(line.strip()[2:])
            continue
        if found:
            path[len(found["indent"]) // 2 :] = [found["key"]]
            if comment:
                yield Value(tuple(path), _at(defaults, path), " ".join(comment))
        comment = []


def undescribed(text: str) -> list[str]:
    """Return the keys that no comment describes: neither their own, nor one above or below them."""
    known = {value.path for value in described(text)}

    def missing(level: Any, path: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401 - any value of YAML
        if path in known:
            return
        if isinstance(level, dict) and level:
            for key, below in level.items():  # pyright: ignore[reportUnknownVariableType]
                yield from missing(below, (*path, str(key)))  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield ".".join(path)

    return list(missing(yaml.safe_load(text), ()))


def table(text: str) -> str:
    """Return the table of the values of a values.yaml."""
    rows = (
        f"| `{'.'.join(value.path)}` | {_shown(value.default)} | {value.meaning.replace('|', '/')} |\n"
        for value in described(text)
    )
    return "| key | default | what for |\n|---|---|---|\n" + "".join(rows)


def readme(before: str, values: str) -> str:
    """Return a README with the table of *values* between its two marks."""
    head, _, rest = before.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    return f"{head}{_BEGIN}\n{table(values)}\n{_END}{tail}" if end else before


def schema(file: Path, values: str) -> str:
    """Return the schema of a chart with the services' settings, and with what *values* say of its keys."""
    before = file.read_text()
    after = with_settings(before) if file.samefile(CHARTS.parent / SCHEMA) else before
    made = msgspec.json.decode(after, type=dict[str, Any])
    schema_descriptions.describe(made, {value.path: value.meaning for value in described(values)})
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def main() -> None:
    """Write the README and the schema of every chart."""
    is_check = "--check" in sys.argv[1:]
    wrong: list[str] = []
    for file in sorted(CHARTS.glob("*/README.md")):
        values = (file.parent / "values.yaml").read_text()
        wrong += [f"{file.parent.name}/values.yaml: {key} has no comment" for key in undescribed(values)]
        new = readme(file.read_text(), values)
        if is_check and new != file.read_text():
            wrong.append(f"{file} is stale: run ./task gen")
        elif not is_check:
            file.write_text(new)
    for file in sorted(CHARTS.glob("*/values.schema.json")):
        new = schema(file, (file.parent / "values.yaml").read_text())
        wrong += [
            f"{file}: {key} has no description: comment it in values.yaml, or describe it here"
            for key in schema_descriptions.undescribed(msgspec.json.decode(new, type=dict[str, Any]))
        ]
        if is_check and new != file.read_text():
            wrong.append(f"{file} is stale: run ./task gen")
        elif not is_check:
            file.write_text(new)
    if wrong:
        sys.exit("\n".join(wrong))


def _at(level: Any, path: list[str]) -> Any:  # noqa: ANN401 - any value of YAML
    for key in path:
        level = level[key]
    return level


def _shown(default: Any) -> str:  # noqa: ANN401 - any value of YAML
    if isinstance(default, dict) and default:
        return "see values.yaml"
    text = yaml.safe_dump(default, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    return "`" + text.replace("|", "/") + "`"


if __name__ == "__main__":
    main()
