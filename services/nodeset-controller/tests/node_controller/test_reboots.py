"""Which Nodes are rebooted for a Slurm node: those that are its Pod's, by the Node's own labels."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from sunk_events.base import Reply
from sunk_events.nodesets import KubePodState
from sunk_events.requests import Later, Noted, RebootNode, Refused
from sunk_kube import wellknown as wk
from sunk_kube.objects import Node
from sunk_kube.testing import T0, node
from sunk_nodeset_controller.metadata import Patch
from sunk_nodeset_controller.node_controller.reboots import Reboots, RebootSettings

if TYPE_CHECKING:
    from sunk_kube.reflector import Reflector
    from sunk_nodeset_controller.adapters.kube_writer import FencedKube
    from sunk_runtime.views import StateView

pytestmark = pytest.mark.anyio

STATE = KubePodState(changed=T0, pod="n1", namespace="slurm", nodeset="gpu", kube_node="x", phase="running")
GONE = replace(STATE, phase="gone")


class Asked:
    """A question for a reboot of the Slurm node n1 of cluster a, and what is written for it."""

    def __init__(self, state: KubePodState, of: Node) -> None:
        self.written: list[Patch] = []
        pods = {state.pod: state}
        self._reboots = Reboots(
            cast("Reflector[Node]", SimpleNamespace(get={"x": of}.get, require_complete=lambda: None)),
            cast(
                "StateView[KubePodState]",
                SimpleNamespace(cluster="a", get=pods.get, undecodable=(), require_settled=lambda: None),
            ),
            cast("FencedKube", SimpleNamespace(mark_node=self._mark)),
            RebootSettings(is_permitted=True),
        )

    async def _mark(self, _: Node, body: Patch) -> None:
        self.written.append(body)

    async def answer(self) -> Reply:
        return await self._reboots.answer(RebootNode(node="n1", who="slurm/slurmctld"))


def labelled(cluster: str, pod: str) -> Node:
    return node("x", labels={wk.LABEL_CLUSTER: cluster, wk.LABEL_POD: pod})


async def test_the_node_of_a_pod_that_is_there_is_rebooted_as_it_was_looked_at() -> None:
    asked = Asked(STATE, labelled("a", "n1"))

    assert await asked.answer() == Noted()
    assert [one["metadata"] for one in asked.written] == [{"resourceVersion": "1"}]
    assert [one["status"]["conditions"][0]["type"] for one in asked.written] == ["PhaseState"]


@pytest.mark.parametrize(
    ("state", "of", "reply"),
    [
        (
            GONE,
            labelled("b", "n7"),
            Refused(code="unknown_node", reason="n1 has no Pod, and its former Node x is b/n7's"),
        ),
        (
            GONE,
            node("x"),
            Refused(code="unknown_node", reason="n1 has no Pod, and its former Node x has no Slurm node"),
        ),
        (
            GONE,
            labelled("a", "n1"),
            Later(reason="the Pod of n1 is gone: Node x is rebooted when it has the next Pod"),
        ),
        (
            STATE,
            node("x"),
            Later(reason="by its labels, Node x of n1 has no Slurm node; the labels may be late"),
        ),
        (
            STATE,
            labelled("b", "n1"),
            Later(reason="by its labels, Node x of n1 is b/n1's; the labels may be late"),
        ),
        (
            STATE,
            labelled("a", "n2"),
            Later(reason="by its labels, Node x of n1 is a/n2's; the labels may be late"),
        ),
    ],
    ids=["taken by another", "let go", "to have its next Pod", "not labelled yet", "of another", "renamed"],
)
async def test_a_node_that_is_not_known_to_be_the_pods_is_not_rebooted(
    state: KubePodState, of: Node, reply: Reply
) -> None:
    asked = Asked(state, of)

    assert await asked.answer() == reply
    assert asked.written == []
