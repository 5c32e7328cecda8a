"""What the `settings` of each service in helm/slurm may be, as JSON Schema, from the service's own settings.

A typo, or a word where a number belongs, is refused by `helm install` and not by a Pod that does not start.
"""

import types
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from gen_settings import docs_of
from msgspec import Meta

import sunk_hook_gateway.config
import sunk_metrics_exporter.config
import sunk_pod_scheduler.config
import sunk_syncer.config

SCHEMA: Final = Path("helm/slurm/values.schema.json")
SERVICES: Final[dict[str, type[msgspec.Struct]]] = {
    "syncer": sunk_syncer.config.Config,
    "scheduler": sunk_pod_scheduler.config.Config,
    "hookGateway": sunk_hook_gateway.config.Config,
    "metricsExporter": sunk_metrics_exporter.config.Config,
}
_BOUNDS: Final = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_WORDS: Final = {float: r"^-?[0-9.]+([a-z0-9.]*(h|m|s))?$", int: "^-?[0-9]+$", bool: "^(true|false)$"}
_TYPES: Final = {float: "number", int: "integer", bool: "boolean"}

Schema = dict[str, Any]


def schema_of(kind: Any) -> Schema:  # noqa: ANN401 - a type as it is annotated.
    """Return what a value of the type *kind* may be, as a value of the chart."""
    metas: list[Meta] = []
    if get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return schema_of(next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if kind not in _TYPES:
        return {"type": ["string", "number"]}
    bounds = {
        word: getattr(meta, name)
        for meta in metas
        for name, word in _BOUNDS.items()
        if getattr(meta, name) is not None
    }
    return {"type": [_TYPES[kind], "string"], "pattern": _WORDS[kind], **bounds}


def settings_of(kind: type[msgspec.Struct]) -> Schema:
    """Return what the settings of a service whose settings are *kind* may be."""
    fields = sorted(msgspec.structs.fields(kind), key=lambda field: field.name)
    meanings: dict[str, str] = {}
    for declared in kind.__mro__:
        if issubclass(declared, msgspec.Struct) and declared is not msgspec.Struct:
            meanings = docs_of(declared) | meanings
    properties = {
        field.name.upper(): {"description": meanings[field.name].replace("``", "`"), **schema_of(field.type)}
        for field in fields
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def with_settings(text: str) -> str:
    """Return the schema *text* with the settings of every service as they are now."""
    schema = msgspec.json.decode(text, type=dict[str, Any])
    for component, kind in SERVICES.items():
        name = f"{component}Settings"
        schema["$defs"][name] = settings_of(kind)
        schema["properties"][component]["properties"]["settings"] = {"$ref": f"#/$defs/{name}"}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
