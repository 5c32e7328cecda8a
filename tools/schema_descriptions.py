"""What the keys of a chart's values mean, into its schema: editors and `helm show` readers see it there.

A key of values.yaml has its comment there. A component's key that replaces one of `podDefaults` has
that one's. What values.yaml does not show, such as the keys of a set of nodes, is described in the schema
itself, and stays.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

Schema = dict[str, Any]
"""A part of a JSON Schema, whose own schema is its type."""

Keys = Mapping[tuple[str, ...], str]
"""What values.yaml says of each key, by its path."""


def describe(schema: Schema, meanings: Keys) -> None:
    """Give the keys of *schema* what *meanings* say of them."""
    for above, key, holder in keys(schema):
        meaning = meanings.get((*above, key))
        common = meanings.get(("podDefaults", key))
        if meaning is None and common is not None and above and above[0] != "definitions":
            meaning = f"Instead of podDefaults.{key}. {common}"
        if meaning is not None:
            holder[key] = {"description": meaning} | _without(holder[key], "description")


def undescribed(schema: Schema) -> list[str]:
    """Return the keys of which *schema* does not say what they mean."""
    found = keys(schema)
    return [".".join((*above, key)) for above, key, holder in found if not holder[key].get("description")]


def keys(schema: Schema) -> Iterator[tuple[tuple[str, ...], str, Schema]]:
    """Yield the path above each key, the key, and the `properties` that hold it.

    What several places share is below ``definitions``, and an entry of a list is ``*``.
    """
    yield from _below(schema, ())
    for word in ("$defs", "definitions"):
        for name, shared in schema.get(word, {}).items():
            yield from _below(shared, ("definitions", name))


def _below(level: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, Schema]]:
    if isinstance(level, list):
        for part in cast("list[object]", level):
            yield from _below(part, path)
    if not isinstance(level, dict):
        return
    node = cast("Schema", level)
    properties: Schema = node.get("properties", {})
    for key in list(properties):
        yield path, key, properties
        yield from _below(properties[key], (*path, key))
    for word in ("items", "additionalProperties", "oneOf", "anyOf"):
        yield from _below(node.get(word), (*path, "*"))


def _without(node: Schema, key: str) -> Schema:
    return {name: value for name, value in node.items() if name != key}
