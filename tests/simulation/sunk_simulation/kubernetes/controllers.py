# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Those of Kubernetes' own controllers that what we do depends on.

Source: k8s.io/kubernetes, pkg/controller.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from sunk_simulation.kubernetes import pods
from sunk_simulation.kubernetes.controller import Controller
from sunk_simulation.kubernetes.evictions import disrupt, status_of
from sunk_simulation.kubernetes.kinds import BUDGETS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, Kind, Object
from sunk_simulation.kubernetes.registry import FOREGROUND, ORPHAN
from sunk_simulation.kubernetes.selectors import by_selector
from sunk_simulation.kubernetes.store import Change, Stored

GRACE_S: Final = 40.0
"""How long a kubelet may be silent (--node-monitor-grace-period)."""
QUARANTINE_S: Final = 40.0
"""How long a Node has to be gone until its Pods are removed."""
_BY_CONTROLLER: Final = (pods.NOT_READY, pods.UNREACHABLE, pods.UNSCHEDULABLE)


class NamespaceController(Controller):
    """Empties namespaces that are deleted, and gives new ones a ServiceAccount."""

    name = "namespace-controller"

    def all(self) -> Iterable[str]:
        """Return their names."""
        return sorted(self.store.of(NAMESPACES.resource))

    def keys(self, change: Change) -> Iterable[str]:
        """Return the namespace, or that of what went."""
        if change.resource == NAMESPACES.resource:
            return (change.key,)
        namespace, slash, _ = change.key.partition("/")
        return (namespace,) if slash and change.type == "DELETED" else ()

    def sync(self, key: str) -> float | None:
        """Fill it, or empty it."""
        found = self.store.get(NAMESPACES.resource, key)
        if found is None:
            return None
        if "deletionTimestamp" not in found.meta:
            if f"{key}/default" not in self.store.of(SERVICE_ACCOUNTS.resource):
                self.registry.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, key)
            return None
        left = False
        for resource, kind in self.registry.kinds().items():
            for inner in [one for one in sorted(self.store.of(resource)) if one.startswith(f"{key}/")]:
                left = True
                if "deletionTimestamp" not in self.registry.get(kind, inner).meta:
                    self.registry.delete(kind, inner)
        if not left:
            self.registry.finish(key)
        return 5.0 if left else None


class GarbageCollector(Controller):
    """Deletes what belongs to nobody that is there."""

    name = "garbage-collector"

    def all(self) -> Iterable[str]:
        """Return everything that belongs to somebody, or waits for what belongs to it."""
        for resource, found in sorted(self.store.objects.items()):
            for key, one in sorted(found.items()):
                if "ownerReferences" in one.meta or "finalizers" in one.meta:
                    yield f"{resource} {key}"

    def keys(self, change: Change) -> Iterable[str]:
        """Return it, where it belongs to somebody or is being deleted; what belongs to it, where it went."""
        meta = change.after.meta
        if change.type != "DELETED":
            if "ownerReferences" in meta or {ORPHAN, FOREGROUND} & set(meta.get("finalizers") or ()):
                yield f"{change.resource} {change.key}"
            return
        for resource, key in self._dependents(meta["uid"]):
            yield f"{resource} {key}"
        for one in meta.get("ownerReferences") or ():  # Whoever waits for its going.
            yield from (f"{resource} {key}" for resource, key in self._by_uid(one["uid"]))

    def sync(self, key: str) -> float | None:
        """Delete it, where nobody that it belongs to is there."""
        resource, _, key = key.partition(" ")
        kind, found = self.registry.kinds().get(resource), self.store.get(resource, key)
        if kind is None or found is None:
            return None
        if "deletionTimestamp" in found.meta:
            return self._wait_for_dependents(kind, key, found)
        owners = found.meta.get("ownerReferences") or ()
        living = [self._owner(one, found.meta.get("namespace", "")) for one in owners]
        if not owners:
            return None
        there = [one for one in living if one is not None]
        if not there:
            self.registry.delete(kind, key, uid=found.meta["uid"], propagation="Background")
        elif all(FOREGROUND in (one.meta.get("finalizers") or ()) for one in there):
            self.registry.delete(kind, key, uid=found.meta["uid"], propagation="Foreground")
        return None

    def _wait_for_dependents(self, kind: Kind, key: str, found: Stored) -> float | None:
        finalizers = found.meta.get("finalizers") or ()
        dependents = list(self._dependents(found.meta["uid"]))
        if ORPHAN in finalizers:
            for resource, one in dependents:
                self._disown(self.registry.kinds()[resource], one, found.meta["uid"])
            self._let_go(kind, key, ORPHAN)
        elif FOREGROUND in finalizers:
            if not dependents:
                self._let_go(kind, key, FOREGROUND)
            for resource, one in dependents:
                self.look(f"{resource} {one}")
        return None

    def _disown(self, kind: Kind, key: str, uid: str) -> None:
        def change(found: Object) -> Object:
            meta = found["metadata"]
            meta["ownerReferences"] = [one for one in meta["ownerReferences"] if one["uid"] != uid]
            return found

        self.registry.update(kind, key, change, manager=self.name, is_patch=True)

    def _let_go(self, kind: Kind, key: str, word: str) -> None:
        def change(found: Object) -> Object:
            meta = found["metadata"]
            meta["finalizers"] = [one for one in meta["finalizers"] if one != word]
            return found

        self.registry.update(kind, key, change, manager=self.name, is_patch=True)

    def _owner(self, reference: Object, namespace: str) -> Stored | None:
        for kind in self.registry.kinds().values():
            if (kind.kind, kind.api_version) == (reference["kind"], reference["apiVersion"]):
                key = f"{namespace}/{reference['name']}" if kind.is_namespaced else reference["name"]
                found = self.store.get(kind.resource, key)
                return found if found is not None and found.meta["uid"] == reference["uid"] else None
        return None

    def _dependents(self, uid: str) -> Iterable[tuple[str, str]]:
        for resource, found in sorted(self.store.objects.items()):
            for key, one in sorted(found.items()):
                if any(owner["uid"] == uid for owner in one.meta.get("ownerReferences") or ()):
                    yield resource, key

    def _by_uid(self, uid: str) -> Iterable[tuple[str, str]]:
        for resource, found in sorted(self.store.objects.items()):
            yield from ((resource, key) for key, one in sorted(found.items()) if one.meta["uid"] == uid)


class DisruptionController(Controller):
    """Says what each budget allows."""

    name = "disruption-controller"

    def all(self) -> Iterable[str]:
        """Return the budgets."""
        return sorted(self.store.of(BUDGETS.resource))

    def keys(self, change: Change) -> Iterable[str]:
        """Return the budget, or those that the Pod counts for."""
        if change.resource == BUDGETS.resource:
            return (change.key,)
        return self._of_pod(change) if change.resource == PODS.resource else ()

    def _of_pod(self, change: Change) -> Iterable[str]:
        namespace, _, _ = change.key.partition("/")
        labels = change.after.meta.get("labels") or {}
        for key, one in self.store.of(BUDGETS.resource).items():
            if key.startswith(f"{namespace}/") and by_selector(one.object["spec"].get("selector"))(labels):
                yield key

    def sync(self, key: str) -> float | None:
        """Write its status."""
        found = self.store.get(BUDGETS.resource, key)
        if found is not None:
            status = status_of(self.registry, found)

            def change(budget: Object) -> Object:
                return {**budget, "status": status}

            self.registry.update(BUDGETS, key, change, manager=self.name, subresource="status", is_patch=True)
        return None


class TaintEviction(Controller):
    """Deletes Pods that do not bear the NoExecute taints of their Nodes, or not for ever."""

    name = "taint-eviction-controller"

    def all(self) -> Iterable[str]:
        """Return the Pods."""
        return sorted(self.store.of(PODS.resource))

    def keys(self, change: Change) -> Iterable[str]:
        """Return the Pod, or all of the Node."""
        if change.resource == PODS.resource:
            return (change.key,)
        if change.resource != NODES.resource:
            return ()
        if change.before is not None and _executes(change.before) == _executes(change.after):
            return ()
        return [
            key for key, one in sorted(self.store.of(PODS.resource).items()) if _node_of(one) == change.key
        ]

    def sync(self, key: str) -> float | None:
        """Delete it, where its time there is over."""
        found = self.store.get(PODS.resource, key)
        node = self.store.get(NODES.resource, _node_of(found)) if found is not None else None
        if found is None or node is None or "deletionTimestamp" in found.meta:
            self._since.pop(key, None)
            return None
        taints = _executes(node)
        if not taints:
            self._since.pop(key, None)
            return None
        if not pods.unborne(found.object, taints, "NoExecute"):
            left = self._left_s(key, found, taints)
            if left is None or left > 0:
                return left
        self.cluster.tell(self.name, "evicts", pod=key)
        disrupt(
            self.registry,
            key,
            reason="DeletionByTaintManager",
            message="Taint manager: deleting due to NoExecute taint",
        )
        self.registry.delete(PODS, key, uid=found.meta["uid"])
        return None

    def start(self, process: Any) -> None:
        """Work in *process*, which remembers nothing of an earlier one."""
        self._since: dict[str, tuple[str, float]] = {}
        super().start(process)

    def _left_s(self, key: str, found: Stored, taints: list[Object]) -> float | None:
        """Return how long the Pod may stay; None: for ever."""
        tolerations = found.object["spec"].get("tolerations") or []
        used = [one for one in tolerations if any(pods.tolerates(one, taint) for taint in taints)]
        limits = [one["tolerationSeconds"] for one in used if one.get("tolerationSeconds") is not None]
        now = self.registry.now().timestamp()
        uid, began = self._since.get(key, ("", now))
        if uid != found.meta["uid"]:
            began = now
        self._since[key] = (found.meta["uid"], began)
        return max(0.0, began + max(0, min(limits)) - now) if limits else None


class NodeLifecycle(Controller):
    """Says which Nodes are silent, and taints those that are not as they should be."""

    name = "node-lifecycle-controller"

    def all(self) -> Iterable[str]:
        """Return the Nodes."""
        return sorted(self.store.of(NODES.resource))

    def keys(self, change: Change) -> Iterable[str]:
        """Return the Node."""
        return (change.key,) if change.resource == NODES.resource else ()

    def sync(self, key: str) -> float | None:
        """Write its taints, and what is known of it."""
        found = self.store.get(NODES.resource, key)
        if found is None:
            return None
        silent_s = self.registry.now().timestamp() - self._heard(found)
        if silent_s >= GRACE_S and _ready(found.object) != "Unknown":
            self._lose(key)
            return None
        taints = list(_wanted_taints(found.object))
        was = found.object["spec"].get("taints") or []
        if [_id(one) for one in was if one["key"] in _BY_CONTROLLER] != [_id(one) for one in taints]:
            self._taint(key, taints)
        return None if silent_s >= GRACE_S else max(0.1, GRACE_S - silent_s)

    def _heard(self, found: Stored) -> float:
        created = datetime.fromisoformat(found.meta["creationTimestamp"]).timestamp()
        return max(created, self.cluster.heard.get(found.meta["name"], 0.0))

    def _lose(self, key: str) -> None:
        self.cluster.tell(self.name, "loses", node=key)
        said = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": self.registry.moment(),
        }
        self.registry.update(NODES, key, _with(said), manager=self.name, subresource="status", is_patch=True)
        said = {"type": "Ready", "status": "False", "lastTransitionTime": self.registry.moment()}
        for pod, one in sorted(self.store.of(PODS.resource).items()):
            if _node_of(one) == key and pods.is_ready(one.object):
                self.registry.update(
                    PODS, pod, _with(said), manager=self.name, subresource="status", is_patch=True
                )

    def _taint(self, key: str, taints: list[Object]) -> None:
        moment = self.registry.moment()

        def change(node: Object) -> Object:
            was = node["spec"].get("taints") or []
            has = {_id(one): one for one in was}
            others = [one for one in was if one["key"] not in _BY_CONTROLLER]
            node["spec"]["taints"] = [
                *others,
                *(has.get(_id(one), {**one, "timeAdded": moment}) for one in taints),
            ]
            return node

        self.registry.update(NODES, key, change, manager=self.name, is_patch=True)


class PodGarbageCollector(Controller):
    """Removes the Pods of Nodes that are gone."""

    name = "pod-garbage-collector"

    def all(self) -> Iterable[str]:
        """Return the Pods."""
        return sorted(self.store.of(PODS.resource))

    def keys(self, change: Change) -> Iterable[str]:
        """Return the Pod, or all of a Node that went."""
        if change.resource == PODS.resource:
            return (change.key,) if _node_of(change.after) not in self.store.of(NODES.resource) else ()
        if change.resource != NODES.resource or change.type != "DELETED":
            return ()
        return [
            key for key, one in sorted(self.store.of(PODS.resource).items()) if _node_of(one) == change.key
        ]

    def start(self, process: Any) -> None:
        """Work in *process*, which remembers nothing of an earlier one."""
        self._missed: dict[str, float] = {}
        super().start(process)

    def sync(self, key: str) -> float | None:
        """Remove it, where its Node is gone for long enough."""
        found = self.store.get(PODS.resource, key)
        node = _node_of(found) if found is not None else ""
        if found is None or not node or node in self.store.of(NODES.resource):
            self._missed.pop(node, None)
            return None
        now = self.registry.now().timestamp()
        left = self._missed.setdefault(node, now) + QUARANTINE_S - now
        if left > 0:
            return left
        disrupt(self.registry, key, reason="DeletionByPodGC", message="PodGC: node no longer exists")
        self.registry.delete(PODS, key, uid=found.meta["uid"], grace_s=0)
        return None


ALL: Final = (
    NamespaceController,
    GarbageCollector,
    DisruptionController,
    TaintEviction,
    NodeLifecycle,
    PodGarbageCollector,
)


def _node_of(pod: Stored | None) -> str:
    return pod.object["spec"].get("nodeName", "") if pod is not None else ""


def _executes(node: Stored) -> list[Object]:
    return [one for one in node.object["spec"].get("taints") or () if one["effect"] == "NoExecute"]


def _ready(node: Object) -> str:
    conditions = node["status"].get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


def _wanted_taints(node: Object) -> Iterable[Object]:
    key = {"False": pods.NOT_READY, "Unknown": pods.UNREACHABLE}.get(_ready(node))
    if key:
        yield from ({"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute"))
    if node["spec"].get("unschedulable"):
        yield {"key": pods.UNSCHEDULABLE, "effect": "NoSchedule"}


def _id(taint: Object) -> tuple[str, str]:
    return taint["key"], taint["effect"]


def _with(condition: Object) -> Any:
    def change(found: Object) -> Object:
        pods.set_condition(found, condition)
        return found

    return change
