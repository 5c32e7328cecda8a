"""A lock that waits for Pods to go is woken when one on its Node changes: one watch serves all locks.

What must stay true: a change of a Pod on the Node of a node that waits wakes that node. A watch for each Node
would take a connection each, of which there are fewer than a fleet has Nodes: all other calls then waited for
one.
"""

from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from sunk_kube.client import KubeClient
from sunk_kube.following import follow_passing
from sunk_kube.objects import KubeObject, KubeStruct
from sunk_kube.pods import Toleration
from sunk_kube.resources import Resource
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy


class BoundSpec(KubeStruct, frozen=True):
    """Where a Pod is, and what lets it in there."""

    node_name: str = ""
    tolerations: tuple[Toleration, ...] = ()


class BoundPod(KubeObject, frozen=True):
    """As little of a Pod as tells which locks it wakes."""

    spec: BoundSpec = BoundSpec()


BOUND_PODS: Final = Resource(kind="Pod", plural="pods", struct=BoundPod)


class PodWatches:
    """Wakes Slurm nodes when something happens to a Pod on their Node, for as long as they want it."""

    def __init__(
        self,
        client: KubeClient,
        measure: EvictionPolicy,
        tasks: TaskGroup,
        *,
        changed: Callable[[str], None],
        came: Callable[[str], None],
    ) -> None:
        """Describe them; nothing is watched yet.

        Args:
            client: Calls of the API server.
            measure: The taint.
            tasks: Where the watch runs.
            changed: Called with a node that waits, when a Pod on its Node may have changed.
            came: Called with a node that is locked, when a Pod is there that its taint lets in for a while.
        """
        self._client = client
        self._measure = measure
        self._tasks = tasks
        self._changed = changed
        self._came = came
        self._kube_node: dict[str, str] = {}
        """Of each Slurm node that is to be woken."""
        self._node: dict[str, str] = {}
        """The other way round."""
        self._waiting: set[str] = set()
        """Those that are woken for any Pod; the others only for one that their taint lets in for a while."""
        self._scope: anyio.CancelScope | None = None
        """Of the watch; None: nobody is to be woken."""

    def wait(self, node: str, kube_node: str) -> None:
        """Wake *node* for whatever happens on *kube_node*, the first time now; doing so already is fine."""
        self._start(node, kube_node)
        if node not in self._waiting:
            self._waiting.add(node)
            self._changed(node)  # What happened since its Pods were listed was told to nobody.

    def guard(self, node: str, kube_node: str) -> None:
        """Wake *node*, which is locked, for Pods that come in past its taint; doing so already is fine."""
        self._waiting.discard(node)
        self._start(node, kube_node)

    def stop(self, node: str) -> None:
        """Wake *node* no longer; not doing so is fine."""
        self._waiting.discard(node)
        self._part(node)
        if not self._kube_node and self._scope is not None:
            self._scope.cancel()
            self._scope = None

    def _start(self, node: str, kube_node: str) -> None:
        if self._kube_node.get(node) != kube_node:
            self._part(node)  # It was on another Node before.
        self._kube_node[node], self._node[kube_node] = kube_node, node
        if self._scope is None:
            self._scope = anyio.CancelScope()
            self._tasks.start_soon(self._follow, self._scope)

    def _part(self, node: str) -> None:
        """Have *node* no longer woken for its Node; the Slurm node that has taken that over stays."""
        before = self._kube_node.pop(node, "")
        if self._node.get(before) == node:
            del self._node[before]

    async def _follow(self, scope: anyio.CancelScope) -> None:
        with scope:
            await follow_passing(
                self._client,
                BOUND_PODS,
                changed=self._pod_changed,
                missed=self._missed,
                fields="spec.nodeName!=",
            )

    def _pod_changed(self, pod: BoundPod) -> None:
        node = self._node.get(pod.spec.node_name, "")
        if node in self._waiting:
            self._changed(node)
        elif node and self._measure.lets_in_for_a_while(pod.spec.tolerations):
            self._came(node)

    def _missed(self) -> None:
        for node in self._waiting:
            self._changed(node)
