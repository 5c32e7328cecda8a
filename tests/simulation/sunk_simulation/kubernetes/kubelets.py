# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Kubelets: what is bound to a Node is started there, told of, and ended in its time.

What must stay true: a Pod's object stays until its containers have ended, unless somebody removes it by
force, or its Node is gone; containers go on when their kubelet does not.

Source: Kubernetes, "Pod Lifecycle"; k8s.io/kubernetes, pkg/kubelet.
"""

import math
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, Protocol

from sunk_simulation.kubernetes import pods
from sunk_simulation.kubernetes.controller import Cluster, Controller
from sunk_simulation.kubernetes.errors import StatusError
from sunk_simulation.kubernetes.kinds import NODES, PODS, Object
from sunk_simulation.kubernetes.store import Change, Stored

BEAT_S: Final = 10.0
"""How often a kubelet says that it lives."""
STATUS_S: Final = 300.0
"""How often it writes so on its Node."""
RECONCILE_S: Final = 10.0
"""How often it looks whether what it has written of a Pod still stands there."""
START_S: Final = (0.2, 2.0)
"""How long containers take to start."""
END_S: Final = (0.05, 0.5)
"""How long they take to end when they are told to, after their preStop hooks."""
ANNOTATION_RUNS_S: Final = "simulation/runs-s"
"""After so many seconds a Pod's containers end by themselves."""
ANNOTATION_EXITS: Final = "simulation/exits"
"""And with this exit code."""
_BOOT: Final = "node"


class Workload(Protocol):
    """What runs in a Pod. A slurmd is one."""

    @property
    def is_ready(self) -> bool:
        """Whether its readiness probe passes."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether it ended, after `stop` or by itself."""
        ...

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


Workloads = Callable[[Object, Callable[[], None]], Workload]
"""Starts what a Pod asks for; what is given with it is to be called whenever it became ready, or ended."""


class Sleeper:
    """A container that does nothing: it is ready, and ends soon after its preStop hook when it is told to.

    Its Pod's annotation `ANNOTATION_RUNS_S` has it end by itself.
    """

    def __init__(self, pod: Object, now_s: Callable[[], float], end_s: float) -> None:
        self._stop_s = end_s + hook_s(pod)
        self._now_s = now_s
        self._ends_s = now_s() + float(_annotation(pod, ANNOTATION_RUNS_S) or math.inf)
        self._stopped_s: float | None = None

    @property
    def is_ready(self) -> bool:
        """It is."""
        return True

    @property
    def has_ended(self) -> bool:
        """Whether its time or its hook is over."""
        is_stopped = self._stopped_s is not None and self._now_s() - self._stopped_s >= self._stop_s
        return is_stopped or self._now_s() >= self._ends_s

    def stop(self) -> None:
        """Begin with its hook."""
        self._stopped_s = self._now_s()

    def kill(self) -> None:
        """End it."""


def exit_code(pod: Object) -> int:
    """Return how a Pod's containers end, if they do so by themselves."""
    return int(_annotation(pod, ANNOTATION_EXITS) or 0)


def _annotation(pod: Object, name: str) -> str:
    return (pod["metadata"].get("annotations") or {}).get(name, "")


def hook_s(pod: Object) -> float:
    """Return how long a Pod's preStop hooks sleep."""
    hooks = ((one.get("lifecycle") or {}).get("preStop") or {} for one in pod["spec"]["containers"])
    return max(((one.get("sleep") or {}).get("seconds", 0) for one in hooks), default=0)


class Run:
    """A Pod's containers on this Node."""

    def __init__(self, pod: Stored, starts_s: float) -> None:
        self.uid: Final[str] = pod.meta["uid"]
        self.object = pod.object
        self.starts_s = starts_s
        """When they have started."""
        self.workload: Workload | None = None
        self.began = ""
        self.kill_s: float | None = None
        """When they are killed, if they have been told to end."""
        self.hook_s = 0.0
        """When their preStop hook is over, which a shorter grace does not end."""
        self.restarts = 0
        self.told: tuple[bool, int] | None = None
        """What was written of it last, and when."""
        self.told_s = 0.0


class Kubelet(Controller):
    """That of one Node."""

    def __init__(
        self, cluster: Cluster, random: Random, node: str, number: int, workloads: Workloads | None = None
    ) -> None:
        super().__init__(cluster, random)
        self.node: Final = node
        self.name = f"kubelet {node}"
        self.ip: Final = f"10.0.{number // 200}.{number % 200 + 10}"
        self.is_cut = False
        """Whether it does not reach the API server."""
        self.runs: Final[dict[str, Run]] = {}
        """What runs here, by the key of its Pod: what is so, whatever the API server says."""
        self.boot_s = self._now_s()
        """When its machine began."""
        self._number = number
        self._addresses = 0
        self._came: dict[str, str] = {}
        """The uid of each Pod that was bound here since it was looked at."""
        self._written_s = 0.0
        self._workloads: Final[Workloads] = workloads or self._sleeper

    @property
    def can_work(self) -> bool:
        """Whether it reaches the API server."""
        return self.cluster.is_running and not self.is_cut

    def lose_power(self) -> None:
        """Lose all that runs here."""
        for run in self.runs.values():
            if run.workload is not None:
                run.workload.kill()
        self.runs.clear()
        self.boot_s = self._now_s() + 1

    def reconnect(self) -> None:
        """Let it reach the API server again."""
        self.is_cut = False

    def crash(self, key: str) -> None:
        """Have a Pod's containers end by themselves; they are started again, as their Pod says."""
        run = self.runs.get(key)
        if run is not None and run.workload is not None:
            run.workload.kill()
            run.workload = None
            run.restarts += 1
            run.starts_s = self._now_s() + min(10.0 * 2 ** (run.restarts - 1), 300.0)
            self.look(key)

    def all(self) -> Iterable[str]:
        """Return its Node, its Pods, and what runs here."""
        yield _BOOT
        for key, one in sorted(self.store.of(PODS.resource).items()):
            if one.object["spec"].get("nodeName") == self.node or key in self.runs:
                yield key

    def keys(self, change: Change) -> Iterable[str]:
        """Return the Pod, if it is bound here."""
        if change.resource != PODS.resource or change.after.object["spec"].get("nodeName") != self.node:
            return ()
        if "deletionTimestamp" not in change.after.meta:
            self._came[change.key] = change.after.meta["uid"]
        return (change.key,)

    def sync(self, key: str) -> float | None:
        """Do what the Pod asks for, or say that the Node is well."""
        if key == _BOOT:
            self._beat()
            return BEAT_S
        found = self.store.get(PODS.resource, key)
        if found is not None and found.object["spec"].get("nodeName") != self.node:
            found = None
        run = self.runs.get(key)
        if run is not None and (found is None or found.meta["uid"] != run.uid):
            self._end(key, run)
            run = None
        is_new = found is not None and self._came.pop(key, "") == found.meta["uid"]
        if found is None:
            return None
        if run is None and is_new and not pods.is_over(found.object):
            run = self._admit(key, found)  # What is deleted by now, too: it has been begun with.
        if "deletionTimestamp" in found.meta:
            return self._stop(key, found, run)
        if pods.is_over(found.object):
            if run is not None:
                self._end(key, run)
            return None
        if run is None and not is_new:
            run = self._admit(key, found)
        return self._run(key, found, run) if run is not None else None

    def _now_s(self) -> float:
        return self.registry.now().timestamp()

    def _sleeper(self, pod: Object, _: Callable[[], None]) -> Workload:
        return Sleeper(pod, self._now_s, self.random.uniform(*END_S))

    def _beat(self) -> None:
        now = self._now_s()
        is_new = self.node not in self.cluster.heard
        self.cluster.heard[self.node] = now
        found = self.store.get(NODES.resource, self.node)
        if found is None:
            if is_new:
                self._register()
        elif now - self._written_s >= STATUS_S or _is_unwell(found):
            self._say(found)

    def _register(self) -> None:
        labels = {
            "kubernetes.io/hostname": self.node,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        body = {
            "metadata": {"name": self.node, "labels": labels},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": self.ip},
                    {"type": "Hostname", "address": self.node},
                ],
                "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"},
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"},
                "nodeInfo": {"kubeletVersion": "v1.36.3", "bootID": f"boot-{self.node}"},
            },
        }
        self._say(self.registry.create(NODES, body, manager="kubelet"))

    def _say(self, node: Stored) -> None:
        self._written_s = self._now_s()
        moment = self.registry.moment()
        said = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        }

        def change(found: Object) -> Object:
            pods.set_condition(found, said)
            return found

        self.registry.update(
            NODES, node.meta["name"], change, manager="kubelet", subresource="status", is_patch=True
        )

    def _admit(self, key: str, found: Stored) -> Run | None:
        node = self.store.get(NODES.resource, self.node)
        taints: list[Object] = (node.object["spec"].get("taints") or []) if node is not None else []
        if pods.unborne(found.object, taints, "NoExecute"):
            self.cluster.tell(self.name, "rejects", pod=key)
            text = "Pod was rejected: Predicate TaintToleration failed"
            self._status(
                key, found.meta["uid"], {"phase": "Failed", "reason": "TaintToleration", "message": text}
            )
            return None
        run = self.runs[key] = Run(found, self._now_s() + self.random.uniform(*START_S))
        return run

    def _run(self, key: str, found: Stored, run: Run) -> float | None:
        now = self._now_s()
        if run.workload is None:
            if now < run.starts_s:
                if run.began:
                    self._tell(key, found, run, is_ready=False)
                return run.starts_s - now
            run.workload = self._workloads(found.object, lambda: self.look(key))
            run.began = run.began or self.registry.moment()
            self.cluster.tell(self.name, "starts", pod=key)
        if run.workload.has_ended:
            return self._over(key, found, run)
        is_ready = run.workload.is_ready
        if run.told == (is_ready, run.restarts) and now < run.told_s + RECONCILE_S:
            return run.told_s + RECONCILE_S - now
        run.told, run.told_s = (is_ready, run.restarts), now
        self._tell(key, found, run, is_ready=is_ready)
        return RECONCILE_S

    def _stop(self, key: str, found: Stored, run: Run | None) -> float | None:
        now = self._now_s()
        if run is not None and run.workload is None and now < run.starts_s:
            return run.starts_s - now  # What was begun is gone through with.
        if run is not None and run.workload is None and not run.began:
            self._run(key, found, run)
        if run is not None and run.workload is not None:
            grace_s = found.meta["deletionGracePeriodSeconds"]
            if run.kill_s is None:
                run.hook_s = now + min(grace_s, hook_s(found.object))
                run.workload.stop()
            kill_s = run.kill_s = max(run.hook_s, min(run.kill_s or math.inf, now + grace_s))
            if not run.workload.has_ended and now < kill_s:
                return min(0.1, kill_s - now)
        if run is not None:
            self._end(key, run)
        if not pods.is_over(found.object):
            ended = {"exitCode": 0, "reason": "Completed", "finishedAt": self.registry.moment()}
            self._told(key, found, "Succeeded", {"terminated": ended}, is_ready=False)
        try:
            self.registry.delete(PODS, key, uid=found.meta["uid"], grace_s=0)
        except StatusError as error:
            self.cluster.tell(self.name, "cannot remove", pod=key, why=error.message)
        return None

    def _over(self, key: str, found: Stored, run: Run) -> float | None:
        """Start containers anew that have ended by themselves, or tell how they ended, as their Pod says."""
        code = exit_code(found.object)
        policy = found.object["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and code):
            self.crash(key)
            return None
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": run.began}
        state = {"terminated": {**ended, "finishedAt": self.registry.moment()}}
        self._end(key, run)
        self._told(key, found, "Failed" if code else "Succeeded", state, is_ready=False)
        return None

    def _end(self, key: str, run: Run) -> None:
        if run.workload is not None:
            run.workload.kill()
            self.cluster.tell(self.name, "ends", pod=key)
        del self.runs[key]

    def _tell(self, key: str, found: Stored, run: Run, *, is_ready: bool) -> None:
        state = {"running": {"startedAt": run.began}}
        if run.workload is None:
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
        self._told(key, found, "Running", state, is_ready=is_ready, restarts=run.restarts, began=run.began)

    def _told(
        self,
        key: str,
        found: Stored,
        phase: str,
        state: Object,
        *,
        is_ready: bool,
        restarts: int = 0,
        began: str = "",
    ) -> None:
        ip = found.object["status"].get("podIP") or self._address()
        containers = [
            {
                "name": one["name"],
                "image": one["image"],
                "ready": is_ready,
                "started": "running" in state,
                "restartCount": restarts,
                "state": state,
            }
            for one in found.object["spec"].get("containers") or ()
        ]
        status = {"phase": phase, "hostIP": self.ip, "podIP": ip, "containerStatuses": containers}
        if began:
            status["startTime"] = began
        conditions = {"Initialized": True, "ContainersReady": is_ready, "Ready": is_ready}
        self._status(key, found.meta["uid"], status, conditions)

    def _status(self, key: str, uid: str, status: Object, conditions: dict[str, bool] | None = None) -> None:
        moment = self.registry.moment()

        def change(pod: Object) -> Object:
            pod["metadata"]["uid"] = uid
            pod["status"].update(status)
            for kind, holds in (conditions or {}).items():
                said = {"type": kind, "status": str(holds), "lastTransitionTime": moment}
                pods.set_condition(pod, said)
            return pod

        self.registry.update(PODS, key, change, manager="kubelet", subresource="status", is_patch=True)

    def _address(self) -> str:
        self._addresses += 1
        return f"10.1.{self._number}.{self._addresses % 250 + 1}"


def _is_unwell(node: Stored) -> bool:
    conditions = node.object["status"].get("conditions") or ()
    return not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
