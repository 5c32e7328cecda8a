"""Raw JSON objects of servers, read without tripping over what is absent."""

from collections.abc import Mapping
from typing import Any, cast

Object = dict[str, Any]


def dig(thing: object, *path: str) -> Any:  # noqa: ANN401 - what stands there is the server's business
    """Return what stands at *path*, or None where a step of it is missing."""
    for step in path:
        if not isinstance(thing, Mapping):
            return None
        thing = cast("Mapping[str, object]", thing).get(step)
    return thing


def dig_list(thing: object, *path: str) -> list[Object]:
    """Return the list of objects at *path*, empty where there is none."""
    return cast("list[Object]", dig(thing, *path) or [])


def dig_text(thing: object, *path: str) -> str:
    """Return the text at *path*, empty where there is none."""
    found = dig(thing, *path)
    return "" if found is None else str(found)
