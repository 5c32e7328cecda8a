"""What the keys of a chart's values mean, into its schema: editors and `helm show` readers see it there.

A key of values.yaml has its comment there. A component's key that replaces one of `podDefaults` has
that one's. What values.yaml does not show, such as the keys of a set of nodes, is described in the schema
itself, and stays.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]
"""A part of a JSON Schema, whose own schema is its type."""

Keys = Mapping[tuple[str, ...], str]
"""What values.yaml says of each key, by its path."""


def describe(schema: Schema, meanings: Keys) -> None:
    """Give the keys of *schema* what *meanings* say of them."""
    for path, holder in keys(schema):
        meaning = meanings.get(path)
        common = meanings.get(("podDefaults", path[-1]))
        if meaning is None and len(path) > 1 and common is not None and path[0] != "definitions":
            meaning = f"Instead of podDefaults.{path[-1]}. {common}"
        if meaning is not None:
            holder[path[-1]] = {"description": meaning} | _without(holder[path[-1]], "description")


def undescribed(schema: Schema) -> list[str]:
    """Return the keys of which *schema* does not say what they mean."""
    return [".".join(path) for path, holder in keys(schema) if not holder[path[-1]].get("description")]


def keys(schema: Schema) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Yield the path of each key, and the `properties` that hold it; below ``definitions``, shared ones."""
    yield from _below(schema, ())
    for word in ("$defs", "definitions"):
        for name, shared in schema.get(word, {}).items():
            yield from _below(shared, ("definitions", name))


def _below(level: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Schema]]:  # noqa: ANN401 - any part of a schema
    if isinstance(level, list):
        for part in level:  # pyright: ignore[reportUnknownVariableType]
            yield from _below(part, path)
    if not isinstance(level, dict):
        return
    properties: Schema = level.get("properties", {})  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    for key in list(properties):
        yield (*path, key), properties
        yield from _below(properties[key], (*path, key))
    for word in ("items", "additionalProperties", "oneOf", "anyOf"):
        yield from _below(level.get(word), (*path, "*"))  # pyright: ignore[reportUnknownMemberType]


def _without(node: Schema, key: str) -> Schema:
    return {name: value for name, value in node.items() if name != key}
