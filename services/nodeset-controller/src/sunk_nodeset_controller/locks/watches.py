"""Who waits for Pods to go is woken when one on its Node changes: one watch of all Pods, for all who wait.

What must stay true: a change of a Pod on a Node that is watched wakes its Slurm node, or the next look does
that begins after it. A watch for each Node would take a connection each, of which there are fewer than a
fleet has Nodes: whoever else had something to ask then waited for one.
"""

from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from sunk_kube.client import KubeClient
from sunk_kube.objects import KubeObject, KubeStruct
from sunk_kube.reflector import Passing
from sunk_kube.resources import Resource


class BoundSpec(KubeStruct, frozen=True):
    """Where a Pod is."""

    node_name: str = ""


class BoundPod(KubeObject, frozen=True):
    """A Pod, of which nothing counts but where it is."""

    spec: BoundSpec = BoundSpec()


BOUND_PODS: Final = Resource(kind="Pod", plural="pods", struct=BoundPod)


class PodWatches:
    """Wakes Slurm nodes when something happens to a Pod on their Node, for as long as they want it."""

    def __init__(self, client: KubeClient, poke: Callable[[str], None], tasks: TaskGroup) -> None:
        self._client = client
        self._poke = poke
        self._tasks = tasks
        self._kube_node: dict[str, str] = {}
        """Of each Slurm node that is to be woken."""
        self._node: dict[str, str] = {}
        """The other way round."""
        self._scope: anyio.CancelScope | None = None
        """Of the watch; None: nobody is to be woken."""

    def start(self, node: str, kube_node: str) -> None:
        """Wake *node* for Pods on *kube_node*, the first time now; doing so already is fine."""
        if node in self._kube_node:
            return
        self._kube_node[node], self._node[kube_node] = kube_node, node
        self._poke(node)  # What happened since its Pods were listed was told to nobody.
        if self._scope is None:
            self._scope = anyio.CancelScope()
            self._tasks.start_soon(self._follow, self._scope)

    def stop(self, node: str) -> None:
        """Wake *node* no longer; not doing so is fine."""
        kube_node = self._kube_node.pop(node, "")
        self._node.pop(kube_node, None)
        if not self._kube_node and self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _follow(self, scope: anyio.CancelScope) -> None:
        with scope:
            await Passing(
                self._client, BOUND_PODS, told=self._told, missed=self._missed, fields="spec.nodeName!="
            ).run()

    def _told(self, pod: BoundPod) -> None:
        if node := self._node.get(pod.spec.node_name):
            self._poke(node)

    def _missed(self) -> None:
        for node in self._kube_node:
            self._poke(node)
