"""The custom resource definition of NodeSet, generated from its structs; pure.

A structural schema has neither references nor ``anyOf``, so what msgspec says about a struct is unfolded.

Source: Kubernetes, "Specifying a structural schema"; msgspec, JSON Schema.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from sunk_kube.nodesets import NodeSetSpec, NodeSetStatus
from sunk_kube.resources import NODESETS

Schema = dict[str, Any]
"""JSON Schema. ``Any``, for it nests without end."""

_REF: Final = "#/$defs/"
_DROPPED: Final = frozenset({"title", "default", "additionalProperties", "properties", "required", "items"})
_COLUMNS: Final = (
    ("Desired", "integer", ".status.desiredNumberScheduled"),
    ("Feasible", "integer", ".status.numberFeasible"),
    ("Current", "integer", ".status.currentNumberScheduled"),
    ("Ready", "integer", ".status.numberReady"),
    ("Running", "integer", ".status.numberRunning"),
    ("Drain", "integer", ".status.numberDrain"),
    ("Misscheduled", "integer", ".status.numberMisscheduled"),
    ("Unavailable", "integer", ".status.numberUnavailable"),
    ("Cluster", "string", ".spec.cluster"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def nodeset_crd() -> Schema:
    """Return the definition of NodeSet, to be created or applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{NODESETS.plural}.{NODESETS.group}"},
        "spec": {
            "group": NODESETS.group,
            "scope": "Namespaced",
            "names": {
                "kind": NODESETS.kind,
                "listKind": f"{NODESETS.kind}List",
                "plural": NODESETS.plural,
                "singular": NODESETS.kind.lower(),
                "shortNames": ["nset"],
            },
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    spec = _schema_of(NodeSetSpec)
    spec["required"] = ["cluster", "template"]
    return {
        "name": NODESETS.version,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "description": "A set of Slurm nodes: one Pod per Kubernetes Node that fits, each a slurmd.",
                "type": "object",
                "required": ["spec"],
                "properties": {"spec": spec, "status": _schema_of(NodeSetStatus)},
            }
        },
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS
        ],
    }


def _schema_of(kind: type[msgspec.Struct]) -> Schema:
    (root,), definitions = msgspec.json.schema_components([kind], ref_template=_REF + "{name}")
    return _unfold(root, definitions)


def _unfold(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Return *schema* without references, unions with null, or words that a structural schema lacks."""
    if reference := schema.get("$ref"):
        return _unfold(definitions[str(reference).removeprefix(_REF)], definitions)
    if choices := schema.get("anyOf"):
        kept = [choice for choice in cast("list[Schema]", choices) if choice.get("type") != "null"]
        return _unfold(kept[0], definitions)
    found: Schema = {name: value for name, value in schema.items() if name not in _DROPPED}
    if "items" in schema:
        found["items"] = _unfold(schema["items"], definitions)
    if "properties" in schema:
        found["properties"] = {
            name: _unfold(value, definitions) for name, value in schema["properties"].items()
        }
    elif found.get("type") == "object":
        values: Schema = schema.get("additionalProperties") or {}
        if values:
            found["additionalProperties"] = _unfold(values, definitions)
        else:
            found["x-kubernetes-preserve-unknown-fields"] = True
    return found
