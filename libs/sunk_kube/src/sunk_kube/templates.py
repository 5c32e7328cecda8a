"""The schema of a Pod's template in a NodeSet: what we read of it is checked, all else passes; pure.

A wrong selector, toleration or empty list of containers is refused when the NodeSet is applied, with a
sentence, and not by a Pod that never comes. Nothing is pruned: fields that are not named here are kept.

Source: Kubernetes API, PodTemplateSpec, NodeSelectorTerm, Toleration; CRDs, "Validation rules".
"""

from typing import Any, Final

Schema = dict[str, Any]
"""JSON Schema. ``Any``, for it nests without end."""

OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_LABEL_KEY: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_TEXT: Final[Schema] = {"type": "string"}


def rule(expression: str, message: str) -> Schema:
    """Return a validation rule in CEL that refuses with *message*."""
    return {"rule": expression, "message": message}


def _object(properties: Schema, **words: object) -> Schema:
    return {"type": "object", OPEN: True, "properties": properties, **words}


def _list(items: Schema, at_most: int, **words: object) -> Schema:
    return {"type": "array", "maxItems": at_most, "items": items, **words}


def _text(**words: object) -> Schema:
    return {**_TEXT, **words}


def _requirement() -> Schema:
    sentences = (
        rule(
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
            "operators In and NotIn need values",
        ),
        rule(
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
            "operators Exists and DoesNotExist take no values",
        ),
        rule(
            "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && size(self.values) == 1"
            " && self.values[0].matches('^-?[0-9]+$'))",
            "operators Gt and Lt need one whole number",
        ),
    )
    properties = {
        "key": _text(maxLength=317, pattern=_LABEL_KEY, description="A label of Nodes."),
        "operator": _text(enum=["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        "values": _list(_text(maxLength=253), 1000),
    }
    found = _object(properties, required=["key", "operator"])
    return {**found, "x-kubernetes-validations": list(sentences)}


def _field_requirement() -> Schema:
    sentence = rule(
        "self.key == 'metadata.name' && self.operator in ['In', 'NotIn']"
        " && has(self.values) && size(self.values) == 1",
        "matchFields supports metadata.name only, with operator In or NotIn and one value",
    )
    properties = {
        "key": _text(maxLength=317, description="metadata.name."),
        "operator": _text(maxLength=16),
        "values": _list(_text(maxLength=253), 1000),
    }
    found = _object(properties, required=["key", "operator"])
    return {**found, "x-kubernetes-validations": [sentence]}


def _affinity() -> Schema:
    term = _object(
        {"matchExpressions": _list(_requirement(), 32), "matchFields": _list(_field_requirement(), 32)}
    )
    required = _object(
        {"nodeSelectorTerms": _list(term, 16, minItems=1)},
        required=["nodeSelectorTerms"],
        description="Which Nodes may belong to the set. One of the terms must match.",
    )
    node_affinity = _object({"requiredDuringSchedulingIgnoredDuringExecution": required})
    return _object(
        {"nodeAffinity": node_affinity}, description="Only the required terms of nodeAffinity count."
    )


def _toleration() -> Schema:
    sentences = (
        rule("!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
             "a toleration with operator Exists takes no value"),
        rule("(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
             "a toleration without a key needs operator Exists"),
    )  # fmt: skip
    properties = {
        "key": _text(maxLength=317),
        "operator": _text(enum=["Exists", "Equal", "Lt", "Gt"]),
        "value": _text(maxLength=253),
        "effect": _text(enum=["", "NoSchedule", "PreferNoSchedule", "NoExecute"]),
        "tolerationSeconds": {"type": "integer", "format": "int64"},
    }
    return {**_object(properties), "x-kubernetes-validations": list(sentences)}


def _containers(what: str, **words: object) -> Schema:
    quantity = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$",
    }
    amounts = {"type": "object", "additionalProperties": quantity}
    container = _object(
        {
            "name": _text(maxLength=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
            "image": _text(minLength=1),
            "resources": _object({"requests": amounts, "limits": amounts}),
        },
        required=["name", "image"],
    )
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    return _list(container, 64, description=what, **keys, **words)


def template_schema() -> Schema:
    """Return the schema of ``spec.template``."""
    selector = {
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": _text(maxLength=63, pattern=_LABEL_VALUE),
        "description": "Labels that a Node must have.",
        "x-kubernetes-validations": [
            rule(
                f"self.all(key, key.size() <= 317 && key.matches('{_LABEL_KEY}'))",
                "nodeSelector's keys are labels: a name, or a domain, a slash and a name",
            )
        ],
    }
    spec = _object(
        {
            "affinity": _affinity(),
            "nodeSelector": selector,
            "tolerations": _list(
                _toleration(),
                128,
                description="Tolerations of the Pods, in addition to those that the nodeset-controller adds.",
            ),
            "containers": _containers("The containers of the Pods. One of them runs slurmd.", minItems=1),
            "initContainers": _containers("Containers that run before slurmd."),
            "restartPolicy": _text(enum=["Always"]),
            "nodeName": _text(maxLength=253),
        },
        required=["containers"],
        description="The spec of the Pods, with any field that Kubernetes knows. Of node affinity "
        "only the required "
        "terms count. The nodeset-controller adds the Node, a toleration of the lock, and "
        "a DaemonSet's tolerations.",
    )
    spec["x-kubernetes-validations"] = [
        rule(
            "!has(self.nodeName)",
            "only the nodeset-controller chooses nodeName: use nodeSelector or affinity",
        )
    ]
    texts = {"type": "object", "additionalProperties": _TEXT}
    return {
        "type": "object",
        "description": "The Pod that runs slurmd on each Node.",
        "required": ["spec"],
        "properties": {
            "metadata": _object(
                {"labels": texts, "annotations": texts}, description="Labels and annotations of the Pods."
            ),
            "spec": spec,
        },
    }
