# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Who owns which fields of an object: field management and server-side apply; pure.

Source: Kubernetes, "Server-Side Apply". Fields are paths; a list that is no table is one field as a whole.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from sunk_simulation.kubernetes.kinds import Object
from sunk_simulation.kubernetes.patches import LIST_KEYS, SETS
from sunk_simulation.kubernetes.store import Manager

Path = tuple[str, ...]
Leaves = dict[Path, Any]
"""The value of each field."""
_NOBODYS: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    }
)


class Applied(NamedTuple):
    """What came of an apply."""

    object: Object
    managers: tuple[Manager, ...]


class AppliedConflictError(Exception):
    """Fields are others', who set them to something else."""

    def __init__(self, managers: Iterable[str]) -> None:
        super().__init__(", ".join(managers))


def leaves(found: Object) -> Leaves:
    """Return the fields of an object that somebody may own."""
    made: Leaves = {}
    for name, value in found.items():
        if name == "metadata":
            for inner, part in value.items():
                if inner not in _NOBODYS:
                    made.update(_leaves(part, ("f:metadata", f"f:{inner}"), inner))
        elif name not in {"apiVersion", "kind"}:
            made.update(_leaves(value, (f"f:{name}",), name))
    return made


def _leaves(value: Any, path: Path, name: str) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for inner, part in value.items():
            yield from _leaves(part, (*path, f"f:{inner}"), inner)
    elif isinstance(value, list) and value and name in LIST_KEYS:
        key = LIST_KEYS[name]
        for row in value:
            yield from _leaves(row, (*path, "k:" + _json({key: row[key]})), "")
    elif isinstance(value, list) and value and name in SETS:
        yield from (((*path, f"v:{_json(word)}"), word) for word in value)
    else:
        yield path, value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def updated(
    managers: tuple[Manager, ...], before: Leaves, after: Leaves, *, who: str, subresource: str, time: str
) -> tuple[Manager, ...]:
    """Return who owns what after *who* made *after* of *before*."""
    missing: Final = object()
    changed = frozenset(path for path, value in after.items() if before.get(path, missing) != value)
    kept = _without(managers, changed, after)
    if not changed:
        return kept
    same = (who, "Update", subresource)
    owned = next((one.fields for one in kept if one[:3] == same), frozenset[Path]())
    return (*(one for one in kept if one[:3] != same), Manager(*same, time, owned | changed))


def applied(
    live: Object,
    managers: tuple[Manager, ...],
    body: Object,
    *,
    who: str,
    subresource: str,
    time: str,
    is_forced: bool,
) -> Applied:
    """Return *live* as *who* wants it: with all that is in *body*, without what was in the last and is not.

    Raises:
        AppliedConflictError: others set some of it to something else, and it is not forced.
    """
    wanted, has = leaves(body), leaves(live)
    same = (who, "Apply", subresource)
    last = next((one.fields for one in managers if one[:3] == same), frozenset[Path]())
    others = [one for one in managers if one[:3] != same]
    differs = frozenset(path for path, value in wanted.items() if path in has and has[path] != value)
    if not is_forced and (owners := sorted({one.name for one in others if one.fields & differs})):
        raise AppliedConflictError(owners)
    theirs = frozenset[Path]().union(*(one.fields for one in others))
    made: Object = msgspec.json.decode(msgspec.json.encode(live))
    for path in sorted(last - wanted.keys() - theirs, key=_is_of_key):
        _take_out(made, path)
    for path, value in wanted.items():
        _put_in(made, path, value)
    kept = _without(tuple(others), differs, leaves(made))
    return Applied(made, (*kept, Manager(*same, time, frozenset(wanted))))


def _without(managers: tuple[Manager, ...], taken: frozenset[Path], left: Leaves) -> tuple[Manager, ...]:
    kept = ((one, frozenset(path for path in one.fields - taken if path in left)) for one in managers)
    return tuple(one._replace(fields=fields) for one, fields in kept if fields)


def _is_of_key(path: Path) -> tuple[bool, Path]:
    """Put what tells the row of a table after what else is in it."""
    is_key = len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in msgspec.json.decode(path[-2][2:])
    return is_key, path


def _put_in(root: Any, path: Path, value: Any) -> None:
    here: Any = root
    for index, step in enumerate(path):
        is_last = index == len(path) - 1
        if step.startswith("f:"):
            if is_last:
                here[step[2:]] = value
                return
            if path[index + 1].startswith("f:"):
                here = _kept(here, step[2:], dict)
            else:
                here = _kept(here, step[2:], list)
        elif step.startswith("k:"):
            row_key = msgspec.json.decode(step[2:])
            row: Any = next((one for one in here if row_key.items() <= one.items()), None)
            if row is None:
                row = dict(row_key)
                here.append(row)
            here = row
        elif value not in here:
            here.append(value)


def _kept(here: Any, name: str, kind: type[Any]) -> Any:
    if not isinstance(here.get(name), kind):
        here[name] = kind()
    return here[name]


def _take_out(root: Any, path: Path) -> None:
    """Remove a field, and whatever held nothing else."""
    above: list[tuple[Any, Any]] = []
    here = root
    for step in path:
        if step.startswith("f:"):
            above.append((here, step[2:]))
            here = here.get(step[2:]) if isinstance(here, dict) else None
        elif step.startswith("k:"):
            row_key = msgspec.json.decode(step[2:])
            row = next((one for one in here or () if row_key.items() <= one.items()), None)
            above.append((here, row))
            here = row
        else:
            above.append((here, msgspec.json.decode(step[2:])))
        if here is None:
            return
    for where, name in reversed(above):
        if isinstance(where, list):
            where.remove(name)
        else:
            del where[name]
        if where:
            return


def managed_fields(managers: Iterable[Manager], api_version: str) -> list[Object]:
    """Return ``metadata.managedFields``."""
    return [
        {
            "manager": one.name,
            "operation": one.operation,
            "apiVersion": api_version,
            "time": one.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(one.fields),
            **({"subresource": one.subresource} if one.subresource else {}),
        }
        for one in managers
    ]


def _tree(paths: Iterable[Path]) -> Object:
    root: Object = {}
    for path in sorted(paths):
        here = root
        for step in path:
            here = here.setdefault(step, {})
    return root
