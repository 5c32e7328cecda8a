"""Which changes of a Node are a reason to look at its lock."""

from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from sunk_kube.objects import Node
from sunk_kube.testing import node
from sunk_nodeset_controller.lock_controller.stray_taints import lock_changes
from sunk_nodeset_controller.locks.model import LockTaint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sunk_kube.reflector import Reflector
    from sunk_runtime.changes import Changes

PLAIN = node("d1")


class Nodes:
    """A view that hands on what follows it."""

    def follow(self, _: "Changes", keys_of: "Callable[[Node | None, Node | None], Iterable[str]]") -> None:
        self.keys_of = keys_of


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, PLAIN, ["d1"], id="it came, maybe in place of a locked one of its name"),
        pytest.param(PLAIN, replace(PLAIN, spec=replace(PLAIN.spec, unschedulable=True)), [], id="a cordon"),
        pytest.param(PLAIN, None, [], id="it went"),
    ],
)
def test_a_node_that_came_is_looked_at_and_one_whose_marks_stay_is_not(
    before: Node | None, after: Node | None, expected: list[str]
) -> None:
    nodes = Nodes()
    lock_changes(cast("Reflector[Node]", nodes), LockTaint())

    assert list(nodes.keys_of(before, after)) == expected
