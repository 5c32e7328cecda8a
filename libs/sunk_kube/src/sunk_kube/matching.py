"""Whether a Node is one that a Pod may run on: affinity, selectors, taints; pure.

Source: Kubernetes API, NodeSelectorTerm, Toleration; k8s.io/component-helpers, scheduling/corev1.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from sunk_kube.objects import Node, Taint
from sunk_kube.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration

_Test = Callable[[str | None, Collection[str]], bool]
_Requirement = tuple[str, _Test, frozenset[str]]


_DIGITS: Final = 20
"""Characters of a number that is compared: Kubernetes has 64 bits, and reading thousands takes long."""


def _compare(value: str | None, values: Collection[str], sign: int) -> bool:
    try:
        (bound,) = values
        return (
            value is not None
            and max(len(value), len(bound)) <= _DIGITS
            and (int(value) - int(bound)) * sign > 0
        )
    except ValueError:
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
    return selecting(selector)(node)


def selecting(selector: NodeSelector) -> Callable[[Node], bool]:
    """Return what tells whether *selector* selects a Node; read once, for it may name thousands of values."""
    terms = [_term(term) for term in selector.node_selector_terms]

    def is_selected(node: Node) -> bool:
        fields = {"metadata.name": node.metadata.name}
        return any(_all(labels, node.metadata.labels) and _all(others, fields) for labels, others in terms)

    return is_selected


def _term(term: NodeSelectorTerm) -> tuple[list[_Requirement], list[_Requirement]]:
    if not term.match_expressions and not term.match_fields:
        return [("", _never, frozenset())], []  # An empty term matches nothing.
    return _read(term.match_expressions), _read(term.match_fields)


def _read(requirements: Iterable[NodeSelectorRequirement]) -> list[_Requirement]:
    return [(one.key, _OPERATOR.get(one.operator, _never), frozenset(one.values)) for one in requirements]


def _never(_value: str | None, _values: Collection[str]) -> bool:
    return False


def _all(requirements: Iterable[_Requirement], values: Mapping[str, str]) -> bool:
    return all(test(values.get(key), among) for key, test, among in requirements)


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
    all_tolerations = tuple(tolerations)
    return [
        taint
        for taint in taints
        if taint.effect != "PreferNoSchedule" and not any(tolerates(one, taint) for one in all_tolerations)
    ]
