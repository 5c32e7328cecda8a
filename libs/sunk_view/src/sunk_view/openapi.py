"""The OpenAPI document of the API, made from the types of its answers. Pure.

The API server lists it at ``/openapi/v3`` and passes it on. Source: Kubernetes, "OpenAPI V3".
"""

import hashlib
from typing import Any, Final

import msgspec

from sunk_events.view import (
    GROUP,
    ROOT,
    TABLES,
    VERSION,
    Changes,
    Events,
    Explained,
    Jobs,
    Locks,
    Nodes,
    Pods,
    Status,
)
from sunk_view.answers import REASONS
from sunk_view.event_rows import AFTER_CHARS, LAST, PAGE, SINCE_MAX_S

DISCOVERY_PATH: Final = "/openapi/v3"
DOCUMENT_PATH: Final = f"{DISCOVERY_PATH}{ROOT}"
_EXPLAINED: Final = "Why it is as it is"
_EVENTS: Final = "What happened to it"
ANSWERS: Final[dict[str, tuple[type[msgspec.Struct], str]]] = {
    "/status": (Status, "A summary of each Slurm cluster"),
    "/nodes": (Nodes, "Slurm nodes with their Pods, Nodes and locks"),
    "/nodes/{name}/explain": (Explained, _EXPLAINED),
    "/nodes/{name}/events": (Events, _EVENTS),
    "/jobs": (Jobs, "Slurm jobs that have not ended"),
    "/jobs/{name}/explain": (Explained, _EXPLAINED),
    "/jobs/{name}/events": (Events, _EVENTS),
    "/locks": (Locks, "Nodes that are locked or wait for their lock"),
    "/placements": (Pods, "Pods that Slurm places"),
    "/changes": (Changes, "What has changed in tables since earlier answers"),
    "/events": (Events, "What happened"),
    "/namespaces/{namespace}/pods": (Pods, "Pods of a namespace that Slurm places"),
    "/namespaces/{namespace}/pods/{name}/explain": (Explained, _EXPLAINED),
    "/namespaces/{namespace}/pods/{name}/events": (Events, _EVENTS),
    "/namespaces/{namespace}/gangs/{name}/explain": (Explained, _EXPLAINED),
}
"""What is answered where; a test compares the paths with those that are served."""
_QUERY: Final = (
    (
        "last",
        "Begin with this many of the latest events",
        {"type": "integer", "minimum": 1, "maximum": PAGE, "default": LAST},
    ),
    (
        "since",
        "Only events of the last this many seconds",
        {"type": "integer", "minimum": 1, "maximum": SINCE_MAX_S},
    ),
    ("after", "`after` of the earlier answer", {"type": "string", "maxLength": AFTER_CHARS}),
    ("key", "`key` of the earlier answer", {"type": "string"}),
)
_STATUS: Final = {
    "type": "object",
    "description": "Kubernetes' Status: why there is no answer",
    "properties": {name: {"type": "string"} for name in ("kind", "apiVersion", "status", "message", "reason")}
    | {"code": {"type": "integer"}},
}


def document() -> dict[str, Any]:
    """Return the document. ``Any``, because JSON has every shape."""
    kinds = list(dict.fromkeys(kind for kind, _ in ANSWERS.values()))
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "SUNK view", "version": VERSION},
        "paths": {f"{ROOT}{path}": {"get": _operation(path)} for path in ANSWERS},
        "components": {"schemas": schemas | {"Refusal": _STATUS}},
    }


def listed() -> dict[str, Any]:
    """Return where the document of each group and version is; the hash tells a new one from an old one."""
    digest = hashlib.sha256(msgspec.json.encode(document(), order="deterministic")).hexdigest()
    url = f"{DOCUMENT_PATH}?hash={digest.upper()}"
    return {"paths": {f"apis/{GROUP}/{VERSION}": {"serverRelativeURL": url}}}


def _operation(path: str) -> dict[str, Any]:
    kind, summary = ANSWERS[path]
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    if kind is Events:
        parameters += [
            {"name": name, "in": "query", "description": text, "schema": schema}
            for name, text, schema in _QUERY
        ]
    if kind is Changes:
        parameters += [
            {
                "name": table,
                "in": "query",
                "description": "`after` of the earlier answer",
                "schema": {"type": "string", "maxLength": AFTER_CHARS},
            }
            for table in TABLES
        ]
    refused = {str(status): _response(text, "Refusal") for status, text in sorted(REASONS.items())}
    return {
        "operationId": "get" + "".join(part.strip("{}").capitalize() for part in path.split("/")),
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": _response("OK", kind.__name__), **refused},
    }


def _response(text: str, schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": content}
