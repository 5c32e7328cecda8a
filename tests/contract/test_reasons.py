"""No service gives a reason in an Event or a condition that docs/kubernetes-events.md does not have.

Types see to most of it: `EventText` and what is said on Pods take a `Reason`, and pyright refuses text there.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from sunk_kube.reasons import Reason
from sunk_nodeset_controller.reasons import EvictionReason, NodeReason, NodeSetReason
from sunk_pod_scheduler.reasons import PodReason

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = sorted((ROOT / "services").glob("*/src/**/*.py"))
NOT_OF_THE_TABLE: Final = {
    "nodes/conditions.py": 1,  # A copy of what stands on the Pod.
    "node_controller/reboots.py": 1,  # A setting.
}
"""How many conditions are made without a `Reason`, by file."""


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    """Yield each call of *name* in a service, with its file."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield path, node


def test_a_service_makes_its_conditions_of_the_reasons_in_the_table() -> None:
    found = Counter("/".join(path.parts[-2:]) for path, _ in calls("Condition"))

    assert found == NOT_OF_THE_TABLE


def test_a_patch_with_a_condition_names_no_reason_of_its_own() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "reason"
        if isinstance(value, ast.Constant | ast.JoinedStr)
    ]

    assert found == []


@pytest.mark.parametrize("reasons", [PodReason, NodeSetReason, NodeReason, EvictionReason])
def test_each_reason_of_the_table_is_given_by_a_service(reasons: type[Reason]) -> None:
    used = {
        node.attr
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        if isinstance(node.value, ast.Name) and node.value.id == reasons.__name__
    }

    assert used == set(reasons.__members__)


def test_a_reason_is_shown_somewhere_and_tells_what_to_do() -> None:
    for reason in (*PodReason, *NodeSetReason, *NodeReason, *EvictionReason):
        assert reason.about
        assert reason.event or reason.conditions
        assert reason.when.endswith(".")
        assert reason.what_to_do.endswith((".", "?"))
