"""The OpenAPI document, made from the route table."""

from typing import Any, Final

import msgspec

from sunk_hook_gateway.routes import ENDPOINTS, Endpoint

_ALWAYS: Final = {
    400: "malformed: names the field",
    401: "no token, or no valid one",
    403: "a valid token, but of somebody else",
    404: "unknown node or job",
    408: "the body did not come in 10 s: the same call again",
    413: "the body is larger than 64 KiB",
}


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
            },
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    described = {**_ALWAYS, **endpoint.answers}
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "security": [{"job" if endpoint.caller == "job" else "node": []}],
        "parameters": [
            {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
            for part in endpoint.path.split("/")
            if part.startswith("{")
        ],
        "responses": {str(status): {"description": text} for status, text in sorted(described.items())},
    }
    if endpoint.body:
        schema = {"$ref": f"#/components/schemas/{endpoint.body.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation
