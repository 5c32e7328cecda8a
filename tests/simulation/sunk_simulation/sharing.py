# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What must never happen on Nodes that Slurm's jobs and Kubernetes' Pods share, over what the servers hold.

Where a container or a job's process really runs, kubelets and slurmds say, not what stands in objects and
records. Nothing here looks into a service.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from sunk_kube.wellknown import TAINT_LOCK, TAINT_LOCK_VALUE
from sunk_pod_scheduler.placement.gang_membership import LABEL_POD_GROUP, GangMembership
from sunk_simulation.kubernetes import pods
from sunk_simulation.kubernetes.kinds import NODES, PODS, Object
from sunk_simulation.kubernetes.kubelets import Run
from sunk_simulation.kubernetes.model import ModelKubernetes
from sunk_simulation.kubernetes.store import Change
from sunk_simulation.slurm.model import ModelSlurm
from sunk_simulation.slurm.records import JobRecord
from sunk_simulation.slurm.scripts import PLACEHOLDER
from sunk_simulation.slurm.slurmrestd import SERVICE_USER

OVERDUE: Final = "k8s: pod deletion timeout"
_ACTIVE: Final = frozenset({"RUNNING", "SUSPENDED"})

Life = tuple[int, int]
"""A job's number, and which of its lives."""


class Sharing:
    """Looks at each change of Slurm and of Kubernetes; what was wrong stays so."""

    def __init__(
        self,
        slurm: ModelSlurm,
        kubernetes: ModelKubernetes,
        *,
        namespace: str,
        scheduler: str,
        slack_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Begin to look.

        Args:
            slurm: What it looks at.
            kubernetes: And this.
            namespace: Where the slurmds' Pods are, each of which has its Slurm node's name.
            scheduler: The name that Pods through Slurm name.
            slack_s: For how long what was decided upon something may come after that has ceased to be: the
                longest pause of a process, where one was paused lately.
        """
        self._slurm: Final = slurm
        self._kubernetes: Final = kubernetes
        self._namespace: Final = namespace
        self._scheduler: Final = scheduler
        self._slack_s: Final = slack_s
        self._wrong: dict[str, str] = {}
        self._uids: dict[tuple[int, int], str] = {}
        """Whose placeholder a job is, by its number and when it was submitted."""
        self._ran: dict[str, dict[str, int]] = {}
        """When a placeholder ran last, by whose it is and by Slurm node."""
        self._active: dict[str, None] = {}
        """Whose placeholders run."""
        self._lost: dict[str, None] = {}
        """Whose placeholders slurmctld has lost while they ran, until another has its node for good."""
        self._groups: dict[str, dict[tuple[str, str], None]] = {}
        """Which gangs each Pod has said that it is in."""
        self._kube_nodes: dict[str, str] = {}
        """On which Node a Slurm node is."""
        self._reasons: dict[str, str] = {}
        """Of each Slurm node, as it was."""
        self._steps: dict[Life, JobRecord] = {}
        self._runs: dict[str, None] = {}
        submitted, touched = slurm.on_submitted, slurm.on_node_touched

        def on_submitted(job: JobRecord, user: str) -> None:
            submitted(job, user)
            self._submitted(job, user)

        def on_node_touched(node: str, states: list[str], user: str, reason: str) -> None:
            touched(node, states, user, reason)
            self._node_touched(node, states, user, reason)

        slurm.on_submitted, slurm.on_node_touched = on_submitted, on_node_touched
        kubernetes.store.follow(self._changed)

    def job_beside_foreign_pod(self) -> str | None:
        """No job's process runs beside a Pod that has no business there, whichever of both comes later.

        A Pod whose placeholder has ended has none from then on: no job may start beside it.
        """
        self._look()
        return self._wrong.get("beside")

    def bound_elsewhere(self) -> str | None:
        """No Pod is bound where Slurm did not place it."""
        return self._wrong.get("bound")

    def two_pods_on_a_place(self) -> str | None:
        """No two Pods have one place of a placeholder."""
        return self._wrong.get("place")

    def two_jobs_of_a_pod(self) -> str | None:
        """No Pod has two placeholders that run."""
        return self._wrong.get("twice")

    def lifted_under_a_pod(self) -> str | None:
        """No node is lifted while a Pod may run there whose placeholder has ended."""
        return self._wrong.get("lifted")

    def unlocked_under_a_job(self) -> str | None:
        """No Node loses its lock while a process of a job, or a Pod that Slurm has placed, runs there."""
        return self._wrong.get("unlocked")

    def _say(self, what: str, said: str) -> None:
        if what not in self._wrong:
            self._wrong[what] = said
            self._slurm.changed()  # Others may have been told of the change before us.

    def _submitted(self, job: JobRecord, user: str) -> None:
        if user == SERVICE_USER and PLACEHOLDER in job.script:
            self._uids[job.job_id, job.submit_time] = msgspec.json.decode(job.extra)["sunk"]["uid"]

    def _node_touched(self, node: str, states: list[str], user: str, reason: str) -> None:
        before = self._reasons.get(node, "")
        self._reasons[node] = reason
        is_drained = "DRAIN" in self._slurm.state.nodes[node].flags
        if user != SERVICE_USER or is_drained or not states or not before.startswith(OVERDUE):
            return
        for key, run in self._runs_of(self._kube_nodes.get(node, "")):
            if self._is_placed(run.object) and node not in self._places(run.object):
                self._say("lifted", f"{node} is lifted, and {key}, whose job has ended, runs there")

    def _changed(self, change: Change) -> None:
        after = change.after.object
        if change.resource == PODS.resource:
            if group := _group(after):
                self._groups.setdefault(after["metadata"]["uid"], {})[group] = None
            kube_node = after["spec"].get("nodeName")
            if not kube_node or change.type == "DELETED":
                return
            if after["metadata"]["namespace"] == self._namespace:
                self._kube_nodes[after["metadata"]["name"]] = kube_node
            was_bound = change.before is not None and change.before.object["spec"].get("nodeName")
            if self._is_placed(after) and not was_bound:
                self._look()
                self._bound(change.key, after, kube_node)
        elif change.resource == NODES.resource and _is_unlocked(change):
            self._unlocked(change.key)

    def _bound(self, key: str, pod: Object, kube_node: str) -> None:
        ran = {node: at for whose in self._whose(pod) for node, at in self._ran.get(whose, {}).items()}
        since = self._slurm.now() - self._slack_s()
        there = [node for node in ran if self._kube_nodes.get(node) == kube_node]
        if not any(ran[node] >= since for node in there):
            self._say("bound", f"{key} is bound to {kube_node}; its job runs, or ran, on {ran}")
        if not (group := _group(pod)):
            return
        for other, run in self._runs_of(kube_node):
            if _group(run.object) == group and run.uid != pod["metadata"]["uid"]:
                self._say("place", f"{key} and {other} have one place, on {kube_node}")

    def _unlocked(self, kube_node: str) -> None:
        self._look()
        for job in self._steps.values():
            if kube_node in self._kube_nodes_of(job):
                self._say("unlocked", f"{kube_node} loses its lock while job {job.job_id} runs there")
        for key, run in self._runs_of(kube_node):
            # Who runs on without a job is Kubernetes' until he has one again.
            if self._is_placed(run.object) and not any(one in self._lost for one in self._whose(run.object)):
                self._say("unlocked", f"{kube_node} loses its lock while {key} runs there")

    def _look(self) -> None:
        """Take note of what has begun since the last look."""
        self._look_at_placeholders()
        steps = dict(self._all_steps())
        runs = {
            run.uid: (key, kube_node, run)
            for kube_node in self._kubernetes.kubelets
            for key, run in self._runs_of(kube_node)
        }
        new_runs = [found for uid, found in runs.items() if uid not in self._runs]
        new_steps = [job for life, job in steps.items() if life not in self._steps]
        self._steps, self._runs = steps, dict.fromkeys(runs)
        for job in new_steps:
            for kube_node in self._kube_nodes_of(job):
                for key, run in self._runs_of(kube_node):
                    if self._is_foreign(run.object, kube_node):
                        self._say("beside", f"job {job.job_id} starts on {kube_node}, where {key} runs")
        for key, kube_node, run in new_runs:
            # Who bears the lock, if for a while only, is let in by Kubernetes, and is there as long at most.
            if self._is_placed(run.object) or _bears_lock(run.object["spec"].get("tolerations") or []):
                continue
            for job in steps.values():
                if kube_node in self._kube_nodes_of(job):
                    self._say("beside", f"{key} starts on {kube_node}, where job {job.job_id} runs")

    def _look_at_placeholders(self) -> None:
        now, running = self._slurm.now(), dict[str, int]()
        launched = {life for slurmd in self._slurm.slurmds.values() for life in slurmd.steps}
        for job in self._slurm.state.jobs.values():
            uid = self._uids.get((job.job_id, job.submit_time))
            if uid is None or job.base not in _ACTIVE:
                continue
            for node in job.nodes:
                self._ran.setdefault(uid, {})[node] = now
            if uid in running:
                self._say("twice", f"jobs {running[uid]} and {job.job_id} are of one Pod")
            running[uid] = job.job_id
            if (job.job_id, job.life) in launched:
                self._lost.pop(uid, None)
        gone = self._active.keys() - running.keys()
        if gone:
            kept = {self._uids.get((job.job_id, job.submit_time)) for job in self._slurm.state.jobs.values()}
            self._lost.update(dict.fromkeys(sorted(gone - kept)))
        self._active = dict.fromkeys(running)

    def _all_steps(self) -> Iterator[tuple[Life, JobRecord]]:
        """Yield the jobs whose process runs, but for placeholders and for those that Slurm has forgotten."""
        jobs = self._slurm.state.jobs
        for slurmd in self._slurm.slurmds.values():
            for life, step in slurmd.steps.items():
                job = jobs.get(life[0])
                is_ours = job is not None and PLACEHOLDER in job.script
                if job is not None and not is_ours and job.life == life[1] and step.process.is_alive:
                    yield life, job

    def _kube_nodes_of(self, job: JobRecord) -> list[str]:
        """Return the Nodes where processes of *job* may be."""
        nodes = job.nodes if job.base in _ACTIVE else tuple(sorted(job.completing))
        found = [(node, self._kube_nodes.get(node, "")) for node in nodes]
        return [kube_node for node, kube_node in found if self._has_slurmd_of(node, kube_node, job)]

    def _has_slurmd_of(self, node: str, kube_node: str, job: JobRecord) -> bool:
        """Whether the slurmd's Pod that *job* was started by runs yet: its processes end with that."""
        kubelet = self._kubernetes.kubelets.get(kube_node)
        run = kubelet.runs.get(f"{self._namespace}/{node}") if kubelet else None
        return run is not None and run.workload is not None and job.start_time >= int(run.starts_s)

    def _runs_of(self, kube_node: str) -> list[tuple[str, Run]]:
        """Return what really runs on a Node, but for slurmds."""
        kubelet = self._kubernetes.kubelets.get(kube_node)
        return [
            (key, run)
            for key, run in (kubelet.runs.items() if kubelet else ())
            if not key.startswith(f"{self._namespace}/")
            and run.workload is not None
            and not run.workload.has_ended
        ]

    def _is_foreign(self, pod: Object, kube_node: str) -> bool:
        """Whether a Pod has no business beside a job that starts on its Node."""
        if self._is_placed(pod):
            return all(self._kube_nodes.get(node) != kube_node for node in self._places(pod))
        tolerations = pod["spec"].get("tolerations") or []
        return not _bears_lock([one for one in tolerations if one.get("tolerationSeconds") is None])

    def _is_placed(self, pod: Object) -> bool:
        return pod["spec"].get("schedulerName") == self._scheduler

    def _places(self, pod: Object) -> list[str]:
        """Return the Slurm nodes where a placeholder of the Pod runs, or has not left yet."""
        ours = self._whose(pod)
        found: list[str] = []
        for job in self._slurm.state.jobs.values():
            if self._uids.get((job.job_id, job.submit_time)) in ours:
                found += job.nodes if job.base in _ACTIVE else sorted(job.completing)
        return found

    def _whose(self, pod: Object) -> list[str]:
        """Return what its placeholder's mark may name: who waits in a gang may be given another label."""
        uid = pod["metadata"]["uid"]
        groups = self._groups.get(uid, {})
        return [GangMembership(kind="PodGroup", namespace=space, name=name).id for space, name in groups] or [
            uid
        ]


def _group(pod: Object) -> tuple[str, str] | None:
    name = (pod["metadata"].get("labels") or {}).get(LABEL_POD_GROUP)
    return (pod["metadata"]["namespace"], name) if name else None


def _bears_lock(tolerations: list[Object]) -> bool:
    taint = {"key": TAINT_LOCK, "value": TAINT_LOCK_VALUE, "effect": "NoExecute"}
    return not pods.unborne({"spec": {"tolerations": tolerations}}, [taint], "NoExecute")


def _is_unlocked(change: Change) -> bool:
    before = change.before
    return before is not None and _is_locked(before.object) and not _is_locked(change.after.object)


def _is_locked(node: Any) -> bool:
    return any(taint["key"] == TAINT_LOCK for taint in node["spec"].get("taints") or ())
