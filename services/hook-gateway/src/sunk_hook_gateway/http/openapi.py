"""The OpenAPI document, made from the route table."""

from typing import Any, Final

import msgspec

from sunk_hook_gateway.hooks import answers
from sunk_hook_gateway.http.routes import ENDPOINTS, Endpoint

_ALWAYS: Final = {
    400: "malformed; the text names the field",
    401: "no token, or an invalid one",
    403: "a valid token of another node or job",
    404: "unknown node or job",
    408: "the body did not arrive in 10 s: make the same call again",
    413: "the body is larger than 64 KiB",
}
_PATH: Final[dict[str, dict[str, Any]]] = {
    "node": {"type": "string", "minLength": 1, "maxLength": 253},
    "job": {"type": "integer", "minimum": 1, "maximum": (1 << 32) - 1},
}
_ERROR: Final = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_RETRY: Final = {
    "type": "object",
    "properties": {"retry": {"const": True}, "error": {"type": "string"}},
    "required": ["retry"],
}
_RETRY_AFTER: Final = {"Retry-After": {"required": True, "schema": {"type": "integer"}}}


def document(version: str) -> dict[str, Any]:
    """Return the document. ``Any``, because JSON has every shape."""
    bodies = [endpoint.body for endpoint in ENDPOINTS if endpoint.body]
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "SUNK hook gateway", "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "node": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The NodeSet Pod's projected ServiceAccount token.",
                },
                "job": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The placeholder's token, from its job's environment.",
                },
                "user": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "Slurm's own token of a user: `scontrol token`.",
                },
            },
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    described = {**_ALWAYS, **endpoint.answers}
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "security": [{endpoint.caller if endpoint.caller in {"job", "user"} else "node": []}],
        "parameters": [
            {"name": part[1:-1], "in": "path", "required": True, "schema": _PATH[part[1:-1]]}
            for part in endpoint.path.split("/")
            if part.startswith("{")
        ],
        "responses": {str(status): _response(status, text) for status, text in sorted(described.items())},
    }
    if endpoint.body:
        schema = {"$ref": f"#/components/schemas/{endpoint.body.__name__}"}
        operation["requestBody"] = {"required": True, "content": _json(schema)}
    return operation


def _response(status: int, text: str) -> dict[str, Any]:
    if status in _ALWAYS:
        return {"description": text, "content": _json(_ERROR)}
    if status == answers.RETRY.status:
        return {"description": text, "headers": _RETRY_AFTER, "content": _json(_RETRY)}
    return {"description": text}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
