# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Selectors of labels and fields, as queries and as objects spell them; pure."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from sunk_simulation.kubernetes.errors import StatusError
from sunk_simulation.kubernetes.kinds import Object

Matches = Callable[[Object], bool]

_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        }
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "events": frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        }
    ),
    "namespaces": frozenset({"status.phase"}),
}
_SET: Final = re.compile(r"\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*")
_COMMA: Final = re.compile(r",(?![^(]*\))")


def by_query(resource: str, fields: str, labels: str) -> Matches:
    """Return what picks the objects that fit both selectors.

    Raises:
        StatusError: one of them is none.
    """
    wanted = [*_by_fields(resource, fields), *_by_labels(labels)]
    return lambda found: all(one(found) for one in wanted)


def by_selector(selector: Mapping[str, Any] | None) -> Callable[[Mapping[str, str]], bool]:
    """Return what picks labels by a LabelSelector; none picks nothing, an empty one everything."""
    if selector is None:
        return lambda _: False
    equal: Mapping[str, str] = selector.get("matchLabels") or {}
    rules: list[Mapping[str, Any]] = selector.get("matchExpressions") or []

    def matches(labels: Mapping[str, str]) -> bool:
        return all(labels.get(name) == value for name, value in equal.items()) and all(
            holds(rule, labels) for rule in rules
        )

    return matches


def holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a requirement of a selector holds."""
    name, values = rule["key"], rule.get("values") or []
    match rule["operator"]:
        case "In":
            return name in labels and labels[name] in values
        case "NotIn":
            return labels.get(name) not in values
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
        case "Gt":
            return name in labels and int(labels[name]) > int(values[0])
        case _:
            return name in labels and int(labels[name]) < int(values[0])


def _by_fields(resource: str, text: str) -> list[Matches]:
    known = _FIELDS.get(resource, frozenset()) | {"metadata.name", "metadata.namespace"}
    found: list[Matches] = []
    for part in filter(None, text.split(",")):
        name, is_not, value = re.split(r"(!=|==|=)", part, maxsplit=1)
        if name not in known:
            raise StatusError("BadRequest", f"field label not supported: {name}")
        path = name.split(".")
        found.append(_compares(path, value, is_equal=is_not != "!="))
    return found


def _compares(path: list[str], value: str, *, is_equal: bool) -> Matches:
    def matches(found: Object) -> bool:
        here: Any = found
        for name in path:
            here = here.get(name) if isinstance(here, dict) else None
        text = {None: "", True: "true", False: "false"}.get(here, here)
        return (text == value) is is_equal

    return matches


def _by_labels(text: str) -> list[Matches]:
    return [_by_label(part.strip()) for part in filter(None, _COMMA.split(text))]


def _by_label(part: str) -> Matches:
    if found := _SET.fullmatch(part):
        values = [value.strip() for value in found[3].split(",")]
        rule = {"key": found[1], "operator": "In" if found[2] == "in" else "NotIn", "values": values}
    elif "!=" in part:
        name, _, value = part.partition("!=")
        rule = {"key": name.strip(), "operator": "NotIn", "values": [value.strip()]}
    elif "=" in part:
        name, value = re.split(r"==?", part, maxsplit=1)
        rule = {"key": name.strip(), "operator": "In", "values": [value.strip()]}
    elif part.startswith("!"):
        rule = {"key": part[1:], "operator": "DoesNotExist"}
    else:
        rule = {"key": part, "operator": "Exists"}
    return lambda found: holds(rule, found["metadata"].get("labels") or {})
