"""Pods and Nodes that need no API server."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from sunk_kube.objects import Node
from sunk_kube.pods import Pod, PodStatus
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler.placement import job_claims
from sunk_pod_scheduler.placement.node_filter import Port, host_ports, on_nodes
from sunk_pod_scheduler.reasons import PodReason
from sunk_pod_scheduler.testing.builders import KEY, T0
from sunk_runtime.errors import ConflictError


class MemoryPods:
    """Pods and Nodes in memory: a `PodPort` whose reads are never late. It holds state and checks uids."""

    def __init__(self, *pods: Pod, nodes: tuple[Node, ...] = ()) -> None:
        self.pods = {pod.metadata.uid: pod for pod in pods}
        self.last_reasons: dict[str, str] = {}
        """The last reason reported of each Pod, by uid."""
        self.history: dict[str, list[str]] = {}
        """All of them."""
        self.conditions: dict[str, list[tuple[str, bool]]] = {}
        """What each Pod that waits was said to wait for, by uid, and whether its condition alone said so."""
        self.warned: dict[str, list[str]] = {}
        """The reasons of all warnings, by uid."""
        self.ends: dict[str, str] = {}
        """Why each Pod was said to end, by uid."""
        self.all_ends: dict[str, set[str]] = {}
        """All that was said of it: the API server takes the same words once."""
        self._nodes = {node.metadata.name: node for node in nodes}

    def require_complete(self) -> None:
        """Return: all is known."""

    def node(self, name: str) -> Node | None:
        """Return a Node."""
        return self._nodes.get(name)

    def uid_of(self, key: str) -> str:
        """Return the uid of the Pod."""
        return next((uid for uid, pod in self.pods.items() if pod.key == key), "")

    def uids(self) -> list[str]:
        """Return the uids of all Pods."""
        return list(self.pods)

    def holders(self, port: Port) -> dict[str, frozenset[str]]:
        """Return the uids of the Pods that have a host port, by Node."""
        return on_nodes(pod for pod in self.pods.values() if port in host_ports(pod))

    def claiming(self, job: int, owner: str = "") -> list[Pod]:
        """Return the Pods that say, by an annotation of `KEY`, that *job* is *owner*'s, or anybody's."""
        name = job_claims.of_owner(owner, job) if owner else str(job)
        return [pod for pod in self.pods.values() if name in job_claims.keys_of(KEY)(pod)]

    def left(self, job: int, owner: str) -> list[Pod]:
        """Return those that have left, and say so."""
        name = job_claims.of_owner_left(owner, job)
        return [pod for pod in self.pods.values() if name in job_claims.keys_of(KEY)(pod)]

    async def find(self, uid: str, namespace: str, name: str) -> Pod | None:
        """Return the Pod."""
        found = self.pods.get(uid)
        assert (
            found is None or not name or (namespace, name) == (found.metadata.namespace, found.metadata.name)
        )
        return found

    async def annotate(self, pod: Pod, claim: str) -> None:
        """Write which job is the Pod's."""
        await self.note(pod, {ANNOTATION_JOB: claim})

    async def note(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """Write *annotations* on the Pod; return it as written."""
        found = self._existing(pod)
        merged = {**found.metadata.annotations, **annotations}
        written = replace(found, metadata=replace(found.metadata, annotations=merged))
        self.put(written)
        return written

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind the Pod; the kubelet runs it at once."""
        found = self._existing(pod)
        if found.spec.node_name or found.is_terminating:
            raise ConflictError("bound already, or going")
        self.put(replace(found, spec=replace(found.spec, node_name=node), status=PodStatus(phase="Running")))

    async def delete(self, pod: Pod) -> None:
        """Mark a bound Pod for deletion, which takes until `vanish`; remove another at once."""
        found = self.pods.get(pod.metadata.uid)
        if found is None:
            return
        if not found.spec.node_name:
            self.vanish(found.metadata.uid)
        elif not found.is_terminating:
            assert self.ends.get(found.metadata.uid), "nobody was told why"
            self.put(replace(found, metadata=replace(found.metadata, deletion_timestamp=T0)))

    async def report_end(self, pods: Sequence[Pod], reason: PodReason, message: str) -> None:
        """Remember what is said."""
        assert "Warning" in reason.event
        for pod in pods:
            self.ends[pod.metadata.uid] = message
            self.all_ends.setdefault(pod.metadata.uid, set()).add(message)

    async def refuse(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Remember what is said."""
        self._remember(pod, reason, message, "Warning", "`PodScheduled` False")

    async def put_off(self, pod: Pod, reason: PodReason, message: str, *, is_quiet: bool = False) -> None:
        """Remember what is said."""
        self._remember(pod, reason, message, "Normal", "`PodScheduled` False")
        self.conditions.setdefault(pod.metadata.uid, []).append((message, is_quiet))

    async def report_job_lost(self, pod: Pod, reason: PodReason, message: str, *, is_lost: bool) -> None:
        """Remember what is said."""
        assert is_lost == (reason is not PodReason.JOB_FOUND)
        self._remember(pod, reason, message, "Warning" if is_lost else "Normal", f"`SlurmJobLost` {is_lost}")

    def record_event(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Remember what is said."""
        self._remember(pod, reason, message, "Normal")

    def _remember(self, pod: Pod, reason: PodReason, message: str, event: str, condition: str = "") -> None:
        """Remember what is said, which is what the table of reasons says of it."""
        assert message
        assert event in reason.event
        assert condition in reason.conditions
        uid = self._existing(pod).metadata.uid
        self.last_reasons[uid] = reason
        self.history.setdefault(uid, []).append(reason)

    def warn(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Remember what is said."""
        assert message
        assert "Warning" in reason.event
        self.warned.setdefault(pod.metadata.uid, []).append(reason)

    def put(self, pod: Pod) -> None:
        """Store the Pod."""
        self.pods[pod.metadata.uid] = pod

    def put_node(self, node: Node) -> None:
        """Store the Node."""
        self._nodes[node.metadata.name] = node

    def vanish(self, uid: str) -> None:
        """Remove the Pod, as the kubelet does at the end; it being gone is success."""
        self.pods.pop(uid, None)

    def _existing(self, pod: Pod) -> Pod:
        found = self.pods.get(pod.metadata.uid)
        if found is None:
            raise ConflictError("the Pod is gone")
        return msgspec.convert(found, Pod)
