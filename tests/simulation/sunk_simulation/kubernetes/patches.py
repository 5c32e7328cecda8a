# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Patches of three kinds: merge (RFC 7386), JSON (RFC 6902), and Kubernetes' strategic merge; pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sunk_simulation.kubernetes.errors import StatusError

LIST_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that are tables, by their names, and which field tells a row."""
SETS: Final = frozenset({"finalizers"})
"""Lists of words that are sets."""
_STRATEGIC: Final = {**LIST_KEYS, "taints": "key"}
_DIRECTIVE: Final = "$patch"


def merge(value: Any, patch: Any) -> Any:
    """Return *value* with a merge patch, which is left as it is."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), part)
    return found


def strategic(value: Any, patch: Any, name: str = "") -> Any:
    """Return *value*, the field of that *name*, with a strategic merge patch."""
    if isinstance(patch, dict):
        return _strategic_table(value if isinstance(value, dict) else {}, patch)
    if isinstance(patch, list) and name in _STRATEGIC:
        return _rows(value or [], patch, _STRATEGIC[name])
    if isinstance(patch, list) and name in SETS:
        return [*(value or []), *(one for one in patch if one not in (value or []))]
    return patch


def _strategic_table(value: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if patch.get(_DIRECTIVE) == "replace":
        return {name: part for name, part in patch.items() if name != _DIRECTIVE}
    found = dict(value)
    for name, part in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            found[field] = [one for one in found.get(field) or [] if one not in part]
        elif name.startswith("$"):
            continue
        elif part is None:
            found.pop(name, None)
        else:
            found[name] = strategic(found.get(name), part, name)
    return found


def _rows(value: list[Any], patch: list[Any], key: str) -> list[Any]:
    if any(row.get(_DIRECTIVE) == "replace" for row in patch):
        return [row for row in patch if _DIRECTIVE not in row]
    found = {row[key]: row for row in value}
    for row in patch:
        if row.get(_DIRECTIVE) == "delete":
            found.pop(row[key], None)
        else:
            found[row[key]] = strategic(found.get(row[key]), row)
    return list(found.values())


def json_patch(value: Any, patch: list[dict[str, Any]]) -> Any:
    """Return *value* with a JSON patch.

    Raises:
        StatusError: what it tests is not so, or it names what is not there.
    """
    found = msgspec.json.decode(msgspec.json.encode(value))
    for step in patch:
        try:
            _step(found, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            text = f"the server rejected our request due to an error in our request: {step['path']}: {error}"
            raise StatusError("Invalid", text) from error
    return found


def _step(root: Any, step: dict[str, Any]) -> None:
    path, value = step["path"], step.get("value")
    match step["op"]:
        case "test":
            where, name = _place(root, path)
            if where[name] != value:
                raise ValueError("testing value failed")
        case "remove":
            where, name = _place(root, path)
            del where[name]
        case "replace":
            where, name = _place(root, path)
            _ = where[name]
            where[name] = value
        case "add":
            _add(root, path, value)
        case "copy" | "move":
            where, name = _place(root, step["from"])
            taken = where[name]
            if step["op"] == "move":
                del where[name]
            _add(root, path, taken)
        case _:
            raise ValueError("no operation")


def _add(root: Any, path: str, value: Any) -> None:
    where, name = _place(root, path, is_new=True)
    if isinstance(where, list):
        where.insert(name, value)
    else:
        where[name] = value


def _place(root: Any, path: str, *, is_new: bool = False) -> tuple[Any, Any]:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    here = root
    for part in parts[:-1]:
        here = here[int(part)] if isinstance(here, list) else here[part]
    last: Any = parts[-1]
    if isinstance(here, list):
        last = len(here) if is_new and last == "-" else int(last)
    return here, last
