"""Whether a Node is one that a Pod may run on: affinity, selectors, taints; pure.

Source: Kubernetes API, NodeSelectorTerm, Toleration; k8s.io/component-helpers, scheduling/corev1.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sunk_kube.objects import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration

_Test = Callable[[str | None, tuple[str, ...]], bool]


def _compare(value: str | None, values: tuple[str, ...], sign: int) -> bool:
    try:
        return value is not None and (int(value) - int(values[0])) * sign > 0
    except (ValueError, IndexError):
        return False


_OPERATOR: Final[Mapping[str, _Test]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}


def selects(selector: NodeSelector, node: Node) -> bool:
    """Whether one of the terms of *selector* holds for *node*."""
    return any(_holds(term, node) for term in selector.node_selector_terms)


def _holds(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # An empty term matches nothing.
    fields = {"metadata.name": node.metadata.name}
    return _all(term.match_expressions, node.metadata.labels) and _all(term.match_fields, fields)


def _all(requirements: Iterable[NodeSelectorRequirement], values: Mapping[str, str]) -> bool:
    return all(
        (test := _OPERATOR.get(required.operator)) is not None
        and test(values.get(required.key), required.values)
        for required in requirements
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether *toleration* bears *taint*; for how long is another question."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> list[Taint]:
    """Return the taints that keep a Pod off a Node, or drive it away; what is only preferred does not."""
    borne = tuple(tolerations)
    return [
        taint
        for taint in taints
        if taint.effect != "PreferNoSchedule" and not any(tolerates(one, taint) for one in borne)
    ]
