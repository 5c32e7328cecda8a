"""Pods that name us as their scheduler: a view of them by uid, and what we write on them.

What must stay true: every write names the uid, so that a Pod of the same name that came after is never
hit; a Pod is only "no more" when the API server itself has said so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from sunk_kube.bodies import EventText, second_time
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeNotFoundError
from sunk_kube.indexes import Index
from sunk_kube.matching import tolerates
from sunk_kube.objects import Node, Taint, condition
from sunk_kube.pods import Pod, Toleration
from sunk_kube.reflector import Reflector
from sunk_kube.resources import PODS
from sunk_kube.wellknown import ANNOTATION_JOB, TAINT_LOCK
from sunk_pod_scheduler.adapters.event_recorder import EventRecorder
from sunk_pod_scheduler.placement.end_reasons import plain
from sunk_pod_scheduler.placement.job_claims import of_owner, of_owner_left
from sunk_pod_scheduler.placement.model import CONDITION_SLURM_JOB_LOST
from sunk_pod_scheduler.placement.node_filter import Port, on_nodes, port_key
from sunk_pod_scheduler.podspec.validation import grace_s
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.changes import Changes
from sunk_runtime.errors import ConflictError

CONDITION_POD_SCHEDULED: Final = "PodScheduled"


def _decides(pod: Pod) -> tuple[object, ...]:
    """Return what of *pod* may change what is done next; most changes are what we write on it ourselves."""
    meta, spec = pod.metadata, pod.spec
    written = {name: text for name, text in meta.annotations.items() if name != ANNOTATION_JOB}
    return (
        meta.uid,
        written,
        meta.labels,
        meta.deletion_timestamp,
        spec.node_name,
        spec.scheduling_gates,
        pod.is_over,
        pod.has_left,
    )


def with_lock(pod: Pod, key: str) -> list[object]:
    """Return the lock's toleration and those of the Pod; empty if it tolerates every lock for good already.

    The list is one field: it is sent whole, and only for the version that it was read from.
    """
    given = pod.spec.tolerations
    lock = Taint(key=key, effect="NoExecute")
    first = next((one for one in given if tolerates(one, lock)), None)
    if first is not None and first.operator == "Exists" and first.toleration_seconds is None:
        return []
    # In front: of several, the first that fits says for how long Kubernetes lets the Pod stay.
    return [msgspec.to_builtins(one) for one in (Toleration(key=key, operator="Exists"), *given)]


def _without_lock(node: Node, key: str) -> Node:
    others = tuple(taint for taint in node.spec.taints if taint.key != key)
    if len(others) == len(node.spec.taints):
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=others))


class PodStore:
    """The Pods of our scheduler names, and the Nodes; *lock_key* is the taint of those that are locked.

    *indexes*: the same Pods by `job_claims.keys_of` and by `node_filter.port_keys`. *check* raises once we
    may no longer lead: a binding is several calls, and we may be held up in each.
    """

    def __init__(  # noqa: PLR0917 - what it reads, then what it says
        self,
        client: KubeClient,
        watched: Sequence[Reflector[Pod]],
        nodes: Reflector[Node],
        recorder: EventRecorder,
        indexes: Sequence[Index[Pod]],
        lock_key: str = TAINT_LOCK,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._watched = watched
        self._nodes = nodes
        self._recorder = recorder
        self._indexes = indexes
        self._lock_key = lock_key
        self._check = check
        self._key_by_uid: dict[str, str] = {}

    def changes(self) -> Changes:
        """Return a stream of uids: of all Pods now, then of each that changes or goes."""
        changes = Changes(())
        for view in self._watched:
            view.follow(changes, self._uids)
        return changes

    def _uids(self, before: Pod | None, after: Pod | None) -> Iterable[str]:
        if before is not None and after is not None and _decides(before) == _decides(after):
            return
        for pod in (before, after):
            if pod is not None:
                self._key_by_uid[pod.metadata.uid] = pod.key
                yield pod.metadata.uid

    @property
    def is_complete(self) -> bool:
        """Every Pod and Node is known."""
        return self._nodes.is_complete and all(view.is_complete for view in self._watched)

    def require_complete(self) -> None:
        """Raise `TransientError` while not every Pod and Node is known."""
        for view in (*self._watched, self._nodes):
            view.require_complete()

    def uids(self) -> list[str]:
        """Return the uids of all Pods, in no order."""
        return [pod.metadata.uid for view in self._watched for pod in view.values()]

    def node(self, name: str) -> Node | None:
        """Return a Node, but for the lock: it is ours, and our Pods tolerate it."""
        node = self._nodes.get(name)
        return None if node is None else _without_lock(node, self._lock_key)

    def uid_of(self, key: str) -> str:
        """Return the uid of the Pod ``namespace/name``, as watched; empty where there is none."""
        found = (view.get(key) for view in self._watched)
        return next((pod.metadata.uid for pod in found if pod is not None), "")

    def holders(self, port: Port) -> dict[str, frozenset[str]]:
        """Return the uids of the Pods that have a host port, by Node, as watched."""
        return on_nodes(pod for index in self._indexes for pod in index.of(port_key(port)))

    def claiming(self, job: int, owner: str = "") -> list[Pod]:
        """Return the Pods that have not left and say that *job* is *owner*'s, or anybody's, as watched."""
        name = of_owner(owner, job) if owner else str(job)
        return [pod for index in self._indexes for pod in index.of(name)]

    def left(self, job: int, owner: str) -> list[Pod]:
        """Return the Pods that have left and say that *job* is *owner*'s, as watched."""
        return [pod for index in self._indexes for pod in index.of(of_owner_left(owner, job))]

    def watched(self, uid: str) -> Pod | None:
        """Return the Pod *uid* as watched."""
        key = self._key_by_uid.get(uid)
        found = (view.get(key) for view in self._watched) if key else ()
        return next((pod for pod in found if pod is not None and pod.metadata.uid == uid), None)

    async def find(self, uid: str, namespace: str, name: str) -> Pod | None:
        """Return the Pod *uid*; None only if the API server has no such Pod. Without a name: as watched."""
        if (found := self.watched(uid)) is not None:
            return found
        if name:
            found = await self._client.find(PODS, name, namespace)
            if found is not None and found.metadata.uid == uid:
                return found
        self._key_by_uid.pop(uid, None)
        return None

    async def annotate(self, pod: Pod, claim: str) -> None:
        """Write which job is the Pod's, and let it tolerate the lock, unless it was changed meanwhile."""
        annotations = {ANNOTATION_JOB: claim}
        tolerations = [] if pod.spec.node_name else with_lock(pod, self._lock_key)
        if tolerations:
            meta = {"annotations": annotations, "resourceVersion": pod.metadata.resource_version}
            with suppress(ConflictError):  # Then the binding does.
                await self._patch(pod, {"metadata": meta, "spec": {"tolerations": tolerations}})
                return
        await self.note(pod, annotations)

    async def note(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """Write *annotations* on the Pod; return it as written."""
        return await self._patch(pod, {"metadata": {"annotations": dict(annotations)}})

    async def bind(self, pod: Pod, node: str) -> None:
        """Let the Pod tolerate the lock, if it does not yet, then bind it to the Node *node*.

        Raises:
            ConflictError: the Pod is gone, another, going, or bound by now.
        """
        try:
            await self._bind(pod, node)
        except ConflictError:
            # The watch may lag behind what was written on the Pod, by ourselves too.
            found = await self._client.find(PODS, pod.metadata.name, pod.metadata.namespace)
            if found is None or found.metadata.uid != pod.metadata.uid:
                raise
            await self._bind(found, node)

    async def _bind(self, pod: Pod, node: str) -> None:
        """Bind the Pod as it is in *pod*, if it still is so."""
        if pod.is_terminating or pod.spec.node_name:
            raise ConflictError(f"Pod {pod.key} may not be bound any more")
        if tolerations := with_lock(pod, self._lock_key):
            version = {"resourceVersion": pod.metadata.resource_version}
            pod = await self._patch(pod, {"metadata": version, "spec": {"tolerations": tolerations}})
        if self._check is not None:
            self._check()
        try:
            await self._client.bind_pod(pod, node)
        except KubeNotFoundError as error:
            raise ConflictError(str(error)) from error

    async def delete(self, pod: Pod) -> None:
        """Delete the Pod with its spec's grace; it being gone is success.

        A longer one that somebody else's deletion gave it is shortened only where the number is said.
        """
        meta, own = pod.metadata, grace_s(pod.spec)
        # With 0 the object would go before its containers.
        grace = max(own, 1) if pod.is_terminating or own < 1 else None
        try:
            await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace)
        except ConflictError:
            return  # A Pod of that name came after: ours is gone.

    async def report_end(self, pods: Sequence[Pod], reason: PodReason, message: str) -> None:
        """Say by Event on Pods that are about to be deleted, and on who controls them, why, now."""
        await self._recorder.record_now(
            pods, EventText(reason=reason, action="Deleting", note=plain(message), type="Warning")
        )

    async def refuse(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Say by Event and by condition why the Pod is not scheduled; said already, it is not said again."""
        await self._unscheduled(
            pod, EventText(reason=reason, action="Scheduling", note=message, type="Warning")
        )

    async def put_off(self, pod: Pod, reason: PodReason, message: str, *, is_quiet: bool = False) -> None:
        """Say by Event and by condition what the Pod waits for; said already, it is not said again."""
        text = EventText(reason=reason, action="Scheduling", note=message)
        await self._unscheduled(pod, text, is_quiet=is_quiet)

    async def _unscheduled(self, pod: Pod, text: EventText, *, is_quiet: bool = False) -> None:
        await self._conditioned(pod, CONDITION_POD_SCHEDULED, "False", text, is_quiet=is_quiet)

    async def report_job_lost(self, pod: Pod, reason: PodReason, message: str, *, is_lost: bool) -> None:
        """Say by Event and by condition whether a Pod that runs has lost its job."""
        kind = "Warning" if is_lost else "Normal"
        text = EventText(reason=reason, action="Scheduling", note=message, type=kind)
        await self._conditioned(pod, CONDITION_SLURM_JOB_LOST, str(is_lost), text)

    async def _conditioned(
        self, pod: Pod, name: str, status: str, text: EventText, *, is_quiet: bool = False
    ) -> None:
        """Set the condition *name* and say *text*, unless that is what the condition says already.

        *is_quiet*: the condition alone says it.
        """
        reason, message = text.reason, text.note
        current = condition(pod.status.conditions, name)
        if current is not None and (current.status, current.reason, current.message) == (
            status,
            reason,
            message,
        ):
            return
        becomes = {
            "type": name,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": second_time(datetime.now(UTC)),
        }
        meta = pod.metadata
        body = {"status": {"conditions": [becomes]}}
        try:
            await self._client.patch_status(
                PODS, meta.name, body, meta.namespace, kind="strategic", uid=meta.uid
            )
        except KubeNotFoundError as error:
            raise ConflictError(str(error)) from error
        if not is_quiet:
            self._recorder.record(pod, text)

    def record_event(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Say by Event that something went well."""
        self._recorder.record(pod, EventText(reason=reason, action="Binding", note=message))

    def warn(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Say by Event what its user had better know; the Pod is scheduled all the same."""
        self._recorder.record(
            pod, EventText(reason=reason, action="Scheduling", note=message, type="Warning")
        )

    async def _patch(self, pod: Pod, body: dict[str, object]) -> Pod:
        meta = pod.metadata
        try:
            return await self._client.patch(PODS, meta.name, body, meta.namespace, uid=meta.uid)
        except KubeNotFoundError as error:
            raise ConflictError(str(error)) from error
