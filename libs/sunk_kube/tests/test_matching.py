import pytest

from sunk_kube.matching import selects, tolerates, untolerated
from sunk_kube.objects import Taint
from sunk_kube.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration
from sunk_kube.testing import node

NODE = node("node1", labels={"role": "compute", "gpus": "8"})


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        pytest.param("role", "In", ("compute", "x"), True, id="in"),
        pytest.param("none", "In", ("compute",), False, id="in, no such label"),
        pytest.param("role", "NotIn", ("compute",), False, id="not in"),
        pytest.param("none", "NotIn", ("compute",), True, id="not in, no such label"),
        pytest.param("role", "Exists", (), True, id="exists"),
        pytest.param("role", "DoesNotExist", (), False, id="does not exist"),
        pytest.param("gpus", "Gt", ("4",), True, id="greater"),
        pytest.param("gpus", "Lt", ("8",), False, id="not less"),
        pytest.param("role", "Gt", ("4",), False, id="no number is not greater"),
        pytest.param("gpus", "Lt", ("9" * 4000,), False, id="a number that Kubernetes has not either"),
        pytest.param("role", "Near", ("4",), False, id="an unknown operator holds for nothing"),
    ],
)
def test_a_requirement_holds_as_kubernetes_says(
    key: str, operator: str, values: tuple[str, ...], *, expected: bool
) -> None:
    required = NodeSelectorRequirement(key=key, operator=operator, values=values)
    selector = NodeSelector((NodeSelectorTerm(match_expressions=(required,)),))

    assert selects(selector, NODE) is expected


def test_terms_are_alternatives_and_an_empty_one_is_none() -> None:
    by_name = NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("node1",)),)
    )

    assert selects(NodeSelector((NodeSelectorTerm(), by_name)), NODE)
    assert not selects(NodeSelector((NodeSelectorTerm(),)), NODE)
    assert not selects(NodeSelector(()), NODE)


TAINT = Taint(key="k", value="v", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration(key="k", value="v"), True, id="equal, any effect"),
        pytest.param(Toleration(key="k", value="w"), False, id="another value"),
        pytest.param(Toleration(key="k", operator="Exists"), True, id="exists"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key="k", operator="Exists", effect="NoSchedule"), False, id="another effect"),
        pytest.param(Toleration(), False, id="nothing"),
    ],
)
def test_a_taint_is_tolerated_as_kubernetes_says(toleration: Toleration, *, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_what_is_only_preferred_keeps_nobody_away() -> None:
    assert untolerated((), (Taint(key="a", effect="PreferNoSchedule"), TAINT)) == [TAINT]
