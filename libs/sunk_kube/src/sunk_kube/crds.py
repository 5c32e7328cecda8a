"""The custom resource definitions of NodeSet and NodeSlice, generated from their structs; pure.

A structural schema has neither references nor ``anyOf``, so what msgspec says about a struct is unfolded.

Source: Kubernetes, "Specifying a structural schema"; msgspec, JSON Schema.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import NodeSetSpec, NodeSetStatus
from sunk_kube.resources import NODESETS, NODESLICES, Resource
from sunk_kube.templates import Schema, rule, template_schema

_REF: Final = "#/$defs/"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_DROPPED: Final = frozenset({"title", "default", "additionalProperties", "properties", "required", "items"})
_Column = tuple[str, str, str, str, int]
"""Name, type, path, meaning, priority: 0 is shown always, 1 with ``-o wide``."""
_NODESET_COLUMNS: Final[tuple[_Column, ...]] = (
    ("Desired", "integer", ".status.desiredNumberScheduled", "Number of wanted Nodes.", 0),
    ("Feasible", "integer", ".status.numberFeasible", "Number of Nodes that fit the template.", 0),
    ("Current", "integer", ".status.currentNumberScheduled", "Pods that exist.", 0),
    ("Ready", "integer", ".status.numberReady", "Pods whose slurmd answers.", 0),
    ("Running", "integer", ".status.numberRunning", "Pods whose Slurm node runs a job.", 0),
    ("Drain", "integer", ".status.numberDrain", "Pods whose Slurm node is drained or draining.", 0),
    ("Updated", "integer", ".status.updatedNumberScheduled", "Pods of the current template.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the creation of the NodeSet.", 0),
    ("Misscheduled", "integer", ".status.numberMisscheduled", "Pods on Nodes that no longer fit.", 1),
    ("Unavailable", "integer", ".status.numberUnavailable", "Wanted Nodes without a ready Pod.", 1),
    ("Cluster", "string", ".spec.cluster", "The Slurm cluster.", 1),
    (
        "Reason",
        "string",
        '.status.conditions[?(@.type=="Ready")].message',
        "Why the NodeSet is not ready.",
        1,
    ),
)
_SLICE_COLUMNS: Final[tuple[_Column, ...]] = (
    ("NodeSet", "string", ".nodeSet", "The NodeSet.", 0),
    ("Cluster", "string", ".cluster", "The Slurm cluster.", 0),
    ("First", "string", ".nodes[0].name", "The first of the Slurm nodes.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the creation of the NodeSlice.", 0),
)
_SPEC_RULES: Final = (
    rule(
        "self.cluster == oldSelf.cluster",
        "the Slurm cluster of a NodeSet cannot be changed: delete the NodeSet and create another",
    ),
    rule(
        "has(self.podNamePrefix) == has(oldSelf.podNamePrefix)"
        " && (!has(self.podNamePrefix) || self.podNamePrefix == oldSelf.podNamePrefix)",
        "podNamePrefix cannot be changed: the names of Slurm nodes begin with it",
    ),
)
_NAME_RULE: Final = rule(
    "self.metadata.name.size() <= 48 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "the name of a NodeSet has at most 48 letters, digits and hyphens and no dots:"
    " names of Pods and Slurm nodes begin with it",
)
_NODESET_TEXT: Final = "A set of Slurm nodes: one Pod with slurmd on each Kubernetes Node that fits."
_SLICE_TEXT: Final = "Up to 100 of the Nodes of a NodeSet. Only the nodeset-controller writes it."


def nodeset_crd() -> Schema:
    """Return the definition of NodeSet, to be created or applied."""
    spec = _schema_of(NodeSetSpec)
    spec["required"] = ["cluster", "template"]
    spec["properties"]["template"] = template_schema()
    spec["x-kubernetes-validations"] = list(_SPEC_RULES)
    version = _version({"spec": spec, "status": _schema_of(NodeSetStatus)}, _NODESET_COLUMNS)
    schema = version["schema"]["openAPIV3Schema"]
    schema |= {"description": _NODESET_TEXT, "required": ["spec"], "x-kubernetes-validations": [_NAME_RULE]}
    version["subresources"] = {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    return _definition(NODESETS, "nset", version)


def nodeslice_crd() -> Schema:
    """Return the definition of NodeSlice, to be created or applied."""
    found = _schema_of(NodeSlice)["properties"]
    version = _version({name: found[name] for name in ("cluster", "nodeSet", "nodes")}, _SLICE_COLUMNS)
    version["schema"]["openAPIV3Schema"]["description"] = _SLICE_TEXT
    return _definition(NODESLICES, "nslice", version)


def crds() -> tuple[Schema, ...]:
    """Return every definition of ours."""
    return nodeset_crd(), nodeslice_crd()


def _definition(resource: Resource[Any], short: str, version: Schema) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [short],
                "categories": ["sunk"],
            },
            "versions": [version],
        },
    }


def _version(properties: Schema, columns: Iterable[_Column]) -> Schema:
    return {
        "name": NODESETS.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": text, "priority": priority}
            for name, kind, path, text, priority in columns
        ],
    }


def _schema_of(kind: type[msgspec.Struct]) -> Schema:
    (root,), definitions = msgspec.json.schema_components([kind], ref_template=_REF + "{name}")
    return _unfold(root, definitions)


def _unfold(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Return *schema* without references, unions with null, or words that a structural schema lacks."""
    if reference := schema.get("$ref"):
        outside = {name: value for name, value in schema.items() if name not in {"$ref", *_DROPPED}}
        return _unfold(definitions[str(reference).removeprefix(_REF)], definitions) | outside
    if schema.get(_INT_OR_STRING):
        return {name: value for name, value in schema.items() if name not in _DROPPED}
    if choices := schema.get("anyOf"):
        kept = [choice for choice in cast("list[Schema]", choices) if choice.get("type") != "null"]
        outside = {name: value for name, value in schema.items() if name not in {"anyOf", *_DROPPED}}
        return _unfold(kept[0], definitions) | outside
    found: Schema = {name: value for name, value in schema.items() if name not in _DROPPED}
    if "enum" in schema:
        found |= {"type": "string", "enum": [word for word in schema["enum"] if word is not None]}
    if "items" in schema:
        found["items"] = _unfold(schema["items"], definitions)
        if keys := schema.get("x-kubernetes-list-map-keys"):
            found["items"]["required"] = keys
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
