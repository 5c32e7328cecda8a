"""The lock on a real API server, real kubelets and a real nats-server; the tests play Slurm's part."""

import json
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.base import Reply, State
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import FailedLock, LockLevel, LockLocked, LockPending, LockState, LockValue
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_events.requests import (
    AcquireLock,
    ConfirmJobs,
    ExplainKubeNode,
    Explanation,
    JobNotRunning,
    JobsConfirmed,
    Later,
    LockGranted,
    LockWaiting,
    Noted,
    Refused,
    ReleaseLock,
)
from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient, connect
from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import KubeObject, Node
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import EVENTS, NAMESPACES, NODES, PODS, Resource
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.adapters import end_events
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.adapters.daemonset_view import DAEMON_OWNERS, Daemons, DaemonSetView
from sunk_nodeset_controller.lock_controller import reconciler
from sunk_nodeset_controller.lock_controller.controller import run_locks
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.pod_watches import PodWatches
from sunk_nodeset_controller.lock_controller.stray_taints import lock_changes
from sunk_nodeset_controller.locks import machine
from sunk_nodeset_controller.locks.annotations import read
from sunk_nodeset_controller.locks.daemon_claims import DaemonClaim, daemon_claim
from sunk_nodeset_controller.locks.daemonsets import DAEMONSETS
from sunk_nodeset_controller.locks.model import OPEN, Clearing, Holder, LockTaint, NodeLock, Rules
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.reasons import EvictionReason
from sunk_runtime import keys
from sunk_runtime.changes import Changes
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings, Message
from sunk_runtime.jetstream import connect as connect_bus
from sunk_runtime.leases import Leadership
from sunk_runtime.requests import answering, ask_until
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.failed_locks import REASON_PREFIX

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CLUSTER: Final = "lab"
NAME: Final = "gpu-000-011"
TAINT: Final = LockTaint()
DRIVING: Final = EvictionPolicy(TAINT)
RULES: Final = Rules(linger_s=0.3)
EVICTING: Final = EvictionPolicy(
    LockTaint(effect="NoSchedule"), Clearing(exempt_priority_classes=frozenset({"system-node-critical"}))
)
EVICTING_RULES: Final = Rules(linger_s=0.3, clear_s=0.5)
"""As `RULES`, where the kubelet admits Pods past the taint."""
PATIENCE_S: Final = WITHIN_S
NEVER_S: Final = 600
"""A Pod that takes as long to leave is there until the test deletes it."""


REPLICA_SETS: Final = Resource(group="apps", kind="ReplicaSet", plural="replicasets", struct=KubeObject)
BUDGETS: Final = Resource(
    group="policy", kind="PodDisruptionBudget", plural="poddisruptionbudgets", struct=KubeObject
)


class Stage:
    """A Node, a Slurm node on it, and what the others say of them."""

    def __init__(self, kube: KubeClient, bus: Bus, namespace: str, kube_node: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.kube_node = kube_node
        self.views = ClusterViews.of(bus, CLUSTER)

    @asynccontextmanager
    async def manager(
        self,
        measure: EvictionPolicy = DRIVING,
        rules: Rules = RULES,
        *,
        viewed: Mapping[str, Node] | None = None,
        others: Collection[StateView[KubePodState]] = (),
        kube: KubeClient | None = None,
    ) -> AsyncGenerator[Mapping[str, Node]]:
        """Run a lock manager that is cut off, wherever it is, when the context ends; yield the viewed Nodes.

        Args:
            measure: The taint, and who may stay.
            rules: The settings of the machine.
            viewed: Nodes, for ever as they are here; None: as a view has them that follows.
            others: The Pods of other Slurm clusters.
            kube: As somebody else than the test.
        """
        leadership, view = Leadership("test", 1, float("inf")), Reflector(self.kube, NODES)
        nodes = view.objects if viewed is None else viewed
        manage = partial(run_locks, self.views, kube or self.kube, leadership, measure=measure, rules=rules)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(view.run)
            await view.complete()
            changed = lock_changes(view, measure.taint)
            tasks.start_soon(partial(manage, viewed=nodes, changed=changed, others=others))
            try:
                yield nodes
            finally:
                tasks.cancel_scope.cancel()

    async def acquire(self, job: int, level: LockLevel = "normal", *, within_s: float = PATIENCE_S) -> Reply:
        """Ask as the gateway does: again and again, until there is an answer or no time is left."""
        until_s = anyio.current_time() + within_s
        deadline = datetime.now(UTC) + timedelta(seconds=within_s)
        question = AcquireLock(node=NAME, job=job, level=level, deadline=deadline)
        while True:
            reply = await ask_until(self.views.bus, CLUSTER, question, deadline=until_s)
            if not isinstance(reply, LockWaiting) or anyio.current_time() >= until_s - 0.5:
                return reply

    async def waits(self, job: int, *, because: str = "") -> LockWaiting:
        """Ask, each time for a moment, until Pods are in the way, kept by *because*."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                with suppress(TransientError):  # Nobody answers yet.
                    reply = await self.acquire(job, within_s=1.0)
                    if isinstance(reply, LockWaiting) and because in repr(reply.blocking):
                        return reply

    async def write(self, nodes: NodeLockStore, wanted: NodeLock) -> Node:
        """Write the lock over what others, such as the kubelet, write to the Node; return it as written."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                with suppress(ConflictError):
                    return await nodes.write(await self.kube.get(NODES, self.kube_node), wanted)

    async def release(self, job: int) -> Reply:
        question = ReleaseLock(node=NAME, job=job)
        return await ask_until(self.views.bus, CLUSTER, question, deadline=anyio.current_time() + PATIENCE_S)

    async def explain(self) -> Explanation:
        deadline = anyio.current_time() + PATIENCE_S
        reply = await ask_until(self.views.bus, CLUSTER, ExplainKubeNode(node=NAME), deadline=deadline)
        assert isinstance(reply, Explanation)
        return reply

    @asynccontextmanager
    async def syncer(self, *running: int) -> AsyncGenerator[set[int]]:
        """Answer which jobs run, as the syncer does: *running*, or what the set that is yielded becomes."""
        now_running = set(running)

        async def answer(question: ConfirmJobs) -> JobsConfirmed:
            assert question.node == NAME
            return JobsConfirmed(running=tuple(now_running.intersection(question.jobs)))

        async with answering(self.views.bus, CLUSTER, ConfirmJobs, answer):
            yield now_running

    async def says(self, key: str, state: State, view: StateView[Any]) -> None:
        """Say something on the bus, as its owner would."""
        await view.complete()
        await StateWriter(self.views.bus, view, fence=None).record(key, state, revision=view.revision(key))

    async def says_job(
        self,
        job: int,
        state: str,
        *,
        runs: bool = False,
        completes: bool = False,
        is_over: bool = False,
        submitted: datetime | None = None,
    ) -> None:
        found = SlurmJobState(
            changed=datetime.now(UTC),
            job=job,
            state=state,
            nodes=NAME,
            is_running=runs,
            is_completing=completes,
            is_over=is_over,
            submitted=submitted,
        )
        await self.says(str(job), found, self.views.slurm_jobs)

    async def says_placement(
        self, pod: Pod, job: int, *, is_there: bool = True, phase: PlacementPhase = "bound", **more: object
    ) -> None:
        meta = pod.metadata
        found = PlacementState(
            changed=datetime.now(UTC),
            uid=meta.uid,
            namespace=meta.namespace,
            pod=meta.name,
            phase=phase,
            job=job,
            node=NAME,
            kube_node=self.kube_node,
            is_pod_present=is_there,
        )
        await self.says(meta.uid, replace(found, **more), self.views.placements)

    async def lock(self, taint: LockTaint = TAINT) -> NodeLock:
        return read(await self.kube.get(NODES, self.kube_node), taint)

    async def stands(self, value: str) -> None:
        """Return when the Node's lock has *value* and the bus says so too."""

        async def holds() -> bool:
            told = self.views.locks.get(NAME)
            return (await self.lock()).value == value and (told.lock if told else "false") == value

        await until(holds, within_s=PATIENCE_S)

    async def tells_in_the_way(self, *pods: str) -> None:
        """Return when the bus says that there is no lock, and that *pods* would be in the way of one."""

        async def holds() -> bool:
            told = self.views.locks.get(NAME)
            return told is not None and (told.lock, told.in_the_way) == ("false", pods)

        await until(holds, within_s=PATIENCE_S)

    async def pod(
        self,
        name: str,
        *,
        leaves_after_s: int = 0,
        bears: bool = False,
        for_s: int | None = None,
        priority: str = "",
        owners: Collection[Mapping[str, object]] = (),
    ) -> Pod:
        """Return a Pod that runs on the Node, and takes its time to leave."""
        await self.bound(
            name, leaves_after_s=leaves_after_s, bears=bears, for_s=for_s, priority=priority, owners=owners
        )

        async def runs() -> bool:
            return (await self.kube.get(PODS, name, self.namespace)).is_ready

        await until(runs, within_s=PATIENCE_S)
        return await self.kube.get(PODS, name, self.namespace)

    async def bound(
        self,
        name: str,
        *,
        leaves_after_s: int = 0,
        bears: bool = False,
        for_s: int | None = None,
        priority: str = "",
        owners: Collection[Mapping[str, object]] = (),
    ) -> None:
        """Make a Pod that is bound to the Node, and bears the lock for good or *for_s* seconds."""
        toleration: dict[str, Any] = {"key": TAINT.key, "operator": "Exists"}
        if for_s is not None:
            toleration |= {"effect": TAINT.effect, "tolerationSeconds": for_s}
        sleep = {"lifecycle": {"preStop": {"sleep": {"seconds": leaves_after_s}}}} if leaves_after_s else {}
        container = {"name": "main", "image": "localhost/sunk-pause:1", **sleep}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}, "ownerReferences": list(owners)},
            "spec": {
                "nodeName": self.kube_node,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": leaves_after_s + 5,
                "containers": [container],
                "tolerations": [toleration] if bears or for_s is not None else [],
                "priorityClassName": priority,
            },
        }
        await self._created(body)

    async def daemonset(self, name: str) -> tuple[KubeObject, Pod]:
        """Return a DaemonSet that tolerates no lock, and its Pod, which runs on the Node."""
        return await self._workload(DAEMONSETS, name)

    async def replica_set(self, name: str) -> tuple[KubeObject, Pod]:
        """Return a ReplicaSet that tolerates no lock, and its Pod, which runs on the Node."""
        return await self._workload(REPLICA_SETS, name, replicas=1)

    async def _workload(self, kind: Resource[Any], name: str, **more: object) -> tuple[KubeObject, Pod]:
        labels = {"app": name}
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": self.kube_node},
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "localhost/sunk-pause:1"}],
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": template, **more},
        }
        made = await self.kube.create(kind, body, self.namespace)

        async def pods() -> list[Pod]:
            found = await self.kube.list_all(PODS, self.namespace, labels=f"app={name}")
            return [pod for pod in found if pod.is_ready]

        async def runs() -> bool:
            return bool(await pods())

        await until(runs, within_s=PATIENCE_S)
        return made, (await pods())[0]

    async def budget(self, name: str) -> None:
        """Forbid the eviction of the Pods labelled *name*."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}},
        }
        await self.kube.create(BUDGETS, body, self.namespace)

    async def _created(self, body: dict[str, Any]) -> None:
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    await self.kube.create(PODS, body, self.namespace)
                except KubeRejectedError as error:  # Its ServiceAccount is not made yet.
                    if error.status != 403:
                        raise
                    await anyio.sleep(0.1)
                else:
                    return

    async def is_there(self, name: str) -> bool:
        found = await self.kube.find(PODS, name, self.namespace)
        return found is not None and not found.is_over


@pytest.fixture(scope="module")
def kubeconfig(kube_lab: KubeLab) -> Path:
    return Path(kube_lab.kubeconfig)


@pytest.fixture
def nats(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def stage(kubeconfig: Path, nats: NatsServer) -> AsyncGenerator[Stage]:
    settings = BusSettings(url=nats.url)
    async with connect("test", kubeconfig=kubeconfig) as kube, connect_bus(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-locks-"}}
        namespace = (await kube.create(NAMESPACES, body)).metadata.name
        kube_node = max(node.metadata.name for node in await kube.list_all(NODES))
        stage = Stage(kube, bus, namespace, kube_node)
        views = stage.views
        pod = KubePodState(
            changed=datetime.now(UTC),
            pod=NAME,
            namespace=namespace,
            nodeset="gpu",
            kube_node=kube_node,
            phase="running",
        )
        async with following(
            views.slurm_nodes, views.slurm_jobs, views.placements, views.kube_pods, views.locks
        ):
            await stage.says(NAME, pod, views.kube_pods)
            try:
                yield stage
            finally:
                with anyio.move_on_after(PATIENCE_S, shield=True):
                    await _unmark(kube, kube_node)
                    for kind in (DAEMON_OWNERS, REPLICA_SETS):  # Else their Pods come back.
                        for one in await kube.list_all(kind, namespace):
                            await kube.delete(kind, one.metadata.name, namespace)
                    for pod in await kube.list_all(PODS, namespace):  # In nobody else's way.
                        await kube.delete(PODS, pod.metadata.name, namespace, grace_period_s=0)
                    await kube.delete(NAMESPACES, namespace)


async def _unmark(kube: KubeClient, name: str) -> None:
    """Take off what a test has left on the Node."""
    while True:
        node = await kube.get(NODES, name)
        taints = [msgspec.to_builtins(one) for one in node.spec.taints if one.key != TAINT.key]
        marks = {wk.ANNOTATION_LOCK: None, wk.ANNOTATION_LOCK_HOLDERS: None}
        version = node.metadata.resource_version
        body = {
            "metadata": {"resourceVersion": version, "annotations": marks},
            "spec": {"taints": taints},
        }
        try:
            await kube.patch(NODES, name, body)
        except ConflictError:
            continue
        return


async def test_a_job_starts_on_a_node_only_after_the_other_workload_has_left(stage: Stage) -> None:
    await stage.pod("web")
    async with stage.manager():
        reply = await stage.acquire(1)

        assert reply == LockGranted()
        assert not await stage.is_there("web")
        lock = await stage.lock()
        assert (lock.value, lock.is_tainted, [found.job for found in lock.holders]) == ("locked", True, [1])
        await stage.stands("locked")
        assert await stage.release(1) == Noted()
        await stage.stands("false")
        assert await stage.lock() == OPEN


async def test_a_node_without_workloads_is_locked_for_two_jobs_until_the_last_has_left(stage: Stage) -> None:
    async with stage.manager():
        assert await stage.acquire(1) == LockGranted()
        assert await stage.acquire(2, "strict") == LockGranted()
        assert await stage.acquire(2, "strict") == LockGranted()
        assert (await stage.lock()).value == "locked_strict"
        assert await stage.release(2) == Noted()
        await stage.stands("locked")
        assert await stage.release(1) == Noted()
        await stage.stands("false")


async def test_what_others_write_on_the_node_meanwhile_is_neither_lost_nor_in_the_way(stage: Stage) -> None:
    foreign = {"key": "test.example/foreign", "value": "yes", "effect": "NoSchedule"}

    async def write() -> None:
        node: Node | None = None
        for number in range(100):
            node = await stage.kube.patch(
                NODES, stage.kube_node, {"metadata": {"annotations": {"test.example/n": str(number)}}}
            )
        assert node is not None

    async with stage.manager(), anyio.create_task_group() as tasks:
        await stage.kube.patch(
            NODES,
            stage.kube_node,
            [{"op": "add", "path": "/spec/taints", "value": [foreign]}],
            kind="json",
        )
        tasks.start_soon(write)
        for job in range(1, 6):
            assert await stage.acquire(job) == LockGranted()
            assert await stage.release(job) == Noted()
    node = await stage.kube.get(NODES, stage.kube_node)
    await stage.kube.patch(NODES, stage.kube_node, {"spec": {"taints": None}})

    assert node.metadata.annotations["test.example/n"] == "99"
    assert [taint.key for taint in node.spec.taints if taint.key != TAINT.key] == ["test.example/foreign"]


async def test_a_manager_killed_while_a_pod_leaves_is_followed_by_one_that_goes_on(stage: Stage) -> None:
    await stage.pod("slow", leaves_after_s=NEVER_S)
    async with stage.manager():
        waiting = await stage.waits(1, because="grace period")
    cut_off = await stage.lock()
    async with stage.manager():
        await stage.waits(1)
        await stage.kube.delete(PODS, "slow", stage.namespace, grace_period_s=0)
        granted = await stage.acquire(1)

    assert waiting.in_the_way == (f"{stage.namespace}/slow",)
    assert [(one.pod, one.because) for one in waiting.blocking] == [
        (f"{stage.namespace}/slow", f"grace period of {NEVER_S + 5} s")
    ]
    assert (cut_off.value, cut_off.is_tainted) == ("pending", True)
    assert granted == LockGranted()
    assert not await stage.is_there("slow")
    assert (await stage.lock()).holders[0].requested_at == cut_off.holders[0].requested_at


async def test_a_manager_killed_between_the_taint_and_its_first_look_is_followed_by_one_that_looks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.pod("slow", leaves_after_s=3)
    async with stage.manager():
        assert await stage.release(1) == Noted()  # It has begun.

        async def hanging(*_: object, **__: object) -> list[Pod]:
            await anyio.sleep_forever()
            return []

        monkeypatch.setattr(stage.kube, "list_all", hanging)

        async def is_tainted() -> bool:
            return (await stage.lock()).is_tainted

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.acquire, 1)
            await until(is_tainted, within_s=PATIENCE_S)
            tasks.cancel_scope.cancel()
    told = stage.views.locks.get(NAME)
    monkeypatch.undo()
    async with stage.manager():
        granted = await stage.acquire(1)

    assert told is None or told.lock == "false"  # Who was killed could tell nobody.
    assert granted == LockGranted()
    assert not await stage.is_there("slow")


async def test_a_pod_that_bears_the_lock_for_a_while_leaves_at_once_also_one_that_comes_to_a_locked_node(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_gone(name: str) -> bool:
        return not await stage.is_there(name)

    await stage.pod("before", for_s=3600)
    async with stage.manager():
        assert await stage.acquire(1) == LockGranted()
        assert await is_gone("before")

    await stage.pod("after", for_s=3600)
    async with stage.manager():  # One that begins looks at once.
        await until(lambda: is_gone("after"), within_s=PATIENCE_S)
        monkeypatch.setattr(reconciler, "LATE_S", 3600.0)
        await stage.bound("late", for_s=3600)
        await until(lambda: is_gone("late"), within_s=PATIENCE_S)
        assert await stage.release(1) == Noted()


async def test_the_pods_that_a_node_is_drained_for_are_in_the_way_until_they_are_gone_whoever_leads(
    stage: Stage,
) -> None:
    await stage.pod("web", leaves_after_s=NEVER_S)
    pod = f"{stage.namespace}/web"
    reason = f"{REASON_PREFIX}: {pod} (grace period of 605 s) (sunk:verify-undrain)"
    drained = SlurmNodeState(changed=datetime.now(UTC), node=NAME, state="IDLE", is_drain=True, reason=reason)
    async with stage.manager():
        await stage.waits(1)
        await stage.says(NAME, drained, stage.views.slurm_nodes)
        assert await stage.release(1) == Noted()  # Its epilog: the job was taken back.
        await stage.tells_in_the_way(pod)
        assert await stage.lock() == OPEN

    async with stage.manager():
        assert await stage.release(1) == Noted()  # It has looked at the node.
        await stage.tells_in_the_way(pod)
        await stage.kube.delete(PODS, "web", stage.namespace, grace_period_s=0)
        await stage.tells_in_the_way()


async def test_a_node_stays_not_drained_for_a_pod_whose_lost_job_is_followed_by_one_that_waits_for_it(
    stage: Stage,
) -> None:
    pod = await stage.pod("placed", bears=True)
    reason = f"{REASON_PREFIX}: {pod.key} (its placeholder job 4 has ended)"
    drained = SlurmNodeState(changed=datetime.now(UTC), node=NAME, state="IDLE", is_drain=True, reason=reason)
    await stage.says_placement(pod, 4)
    async with stage.manager():
        await stage.waits(1)
        await stage.says(NAME, drained, stage.views.slurm_nodes)
        assert await stage.release(1) == Noted()
        await stage.tells_in_the_way(pod.key)
        await stage.says_placement(pod, 5, phase="released", lost=datetime.now(UTC))
        await stage.tells_in_the_way()


async def test_a_node_stays_locked_for_a_pod_whose_job_slurmctld_has_lost(stage: Stage) -> None:
    pod = await stage.pod("placed", bears=True)
    await stage.says_placement(pod, 4)
    async with stage.manager(), stage.syncer(4):
        assert await stage.acquire(4, "strict") == LockGranted()
        await stage.says_placement(pod, 4, lost=datetime.now(UTC))
        assert await stage.release(4) == Noted()  # Its epilog: slurmctld has it ended as an orphan.
        assert [found.job for found in (await stage.lock()).holders] == [4]
        await stage.stands("locked_strict")


@pytest.mark.parametrize("who", ["a Pod", "a member of a gang", "a Pod whose scheduler has not noticed"])
async def test_a_job_that_has_the_number_of_a_lost_one_does_not_start_beside_that_ones_pod(
    stage: Stage, who: str
) -> None:
    """Slurm gives numbers, and nodes, in the same order again."""
    pod, gang = await stage.pod("placed", bears=True), "gang-1" if who == "a member of a gang" else ""
    taken, later = datetime(2026, 1, 15, tzinfo=UTC), datetime(2026, 1, 16, tzinfo=UTC)
    await stage.says_placement(pod, 4, gang=gang, submitted=None if gang else taken)
    whole = replace(pod, metadata=replace(pod.metadata, uid=gang, name="job"))
    if gang:
        await stage.says_placement(whole, 4, submitted=taken)
    await stage.says_job(4, "RUNNING", runs=True, submitted=taken)
    async with stage.manager(), stage.syncer(4, 5):
        assert await stage.acquire(4, "strict") == LockGranted()
        match who:
            case "a Pod":
                await stage.says_placement(pod, 4, submitted=taken, lost=later)
            case "a member of a gang":
                await stage.says_placement(whole, 4, submitted=taken, lost=later)
            case _:
                await stage.says_job(4, "RUNNING", runs=True, submitted=later)
        waiting = await stage.waits(4)
        assert waiting.in_the_way == (pod.key,)
        await stage.says_placement(pod, 5, gang=gang, phase="started", lost=None if gang else later)
        if gang:
            await stage.says_placement(whole, 5, phase="started", lost=later)
        assert await stage.acquire(5, "strict") == LockGranted()


async def test_leave_to_drain_is_stored_before_it_is_given_and_counted_by_whoever_leads_next(
    stage: Stage,
) -> None:
    await stage.pod("web", leaves_after_s=NEVER_S)

    def failed() -> FailedLock | None:
        told = stage.views.locks.get(NAME)
        return told.failed if told is not None else None

    async with anyio.create_task_group() as tasks:
        async with stage.manager():
            tasks.start_soon(stage.waits, 1)
            await until(lambda: failed() is not None, within_s=PATIENCE_S)
        tasks.cancel_scope.cancel()  # The leader was cut off, before or after it answered.
    kept = failed()
    assert kept is not None
    assert kept.in_the_way == (f"{stage.namespace}/web",)

    async with stage.manager():
        told = await stage.waits(2)
        assert (told.is_drain_allowed, told.is_hold_needed) == (True, False)
    for other in ("other-1", "other-2"):  # Two are drained, as far as Slurm could show it by now.
        fresh = replace(kept, at=datetime.now(UTC))
        lock = LockState(changed=kept.at, node=other, kube_node=other, lock="pending", failed=fresh)
        await stage.says(other, lock, stage.views.locks)
    async with stage.manager():
        told = await stage.waits(3)
        assert (told.is_drain_allowed, told.is_hold_needed) == (False, True)


async def test_a_node_is_drained_for_all_pods_that_were_in_the_way_though_its_reason_names_but_a_few(
    stage: Stage,
) -> None:
    names = [f"web-{number}" for number in range(6)]
    for name in names:
        await stage.pod(name, leaves_after_s=NEVER_S)
    reason = f"{REASON_PREFIX}: {stage.namespace}/web-0 and 5 more (sunk:verify-undrain)"
    drained = SlurmNodeState(changed=datetime.now(UTC), node=NAME, state="IDLE", is_drain=True, reason=reason)
    async with stage.manager():
        await stage.waits(1)
        await stage.says(NAME, drained, stage.views.slurm_nodes)
        assert await stage.release(1) == Noted()  # Its epilog: the job was taken back.
        await stage.tells_in_the_way(*(f"{stage.namespace}/{name}" for name in names))
        for name in names[:5]:
            await stage.kube.delete(PODS, name, stage.namespace, grace_period_s=0)
        await stage.tells_in_the_way(f"{stage.namespace}/web-5")

    async with stage.manager():  # Also another leader knows it.
        assert await stage.release(1) == Noted()
        await stage.tells_in_the_way(f"{stage.namespace}/web-5")
        await stage.kube.delete(PODS, "web-5", stage.namespace, grace_period_s=0)
        await stage.tells_in_the_way()


async def test_a_node_that_was_listed_is_taken_as_it_was_once_and_never_after_it_was_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = NodeLockStore(stage.kube, Leadership("test", 1, float("inf")), DRIVING)
    held = NodeLock(value="locked", holders=(Holder(job=7, level="normal", requested_at=datetime.now(UTC)),))
    mark = {"example.com/by": "us"}
    await stage.kube.patch(NODES, stage.kube_node, {"metadata": {"annotations": dict.fromkeys(mark)}})
    await nodes.prefetch({stage.kube_node})
    await stage.kube.patch(NODES, stage.kube_node, {"metadata": {"annotations": mark}})

    prefetched = await nodes.read(stage.kube_node, may_be_prefetched=True)
    fresh = await nodes.read(stage.kube_node, may_be_prefetched=True)
    assert prefetched is not None
    assert fresh is not None
    assert not mark.items() <= prefetched.metadata.annotations.items()
    assert mark.items() <= fresh.metadata.annotations.items()

    listed, may_return, list_all = anyio.Event(), anyio.Event(), stage.kube.list_all

    async def listing_slowly(resource: Resource[Node]) -> list[Node]:
        found = await list_all(resource)
        listed.set()
        await may_return.wait()
        return found

    monkeypatch.setattr(stage.kube, "list_all", listing_slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(nodes.prefetch, {stage.kube_node})
        await listed.wait()
        await stage.write(nodes, held)
        may_return.set()
    found = await nodes.read(stage.kube_node, may_be_prefetched=True)
    assert found is not None
    assert found.metadata.annotations[wk.ANNOTATION_LOCK] == "locked"
    await stage.write(nodes, OPEN)


async def test_a_node_that_is_new_is_taken_from_the_view_once_and_one_that_may_be_locked_never(
    stage: Stage,
) -> None:
    old = await stage.kube.get(NODES, stage.kube_node)
    await stage.kube.patch(NODES, stage.kube_node, {"metadata": {"annotations": {"example.com/by": "us"}}})
    leadership, viewed = Leadership("test", 1, float("inf")), {stage.kube_node: old}
    new = NodeLockStore(stage.kube, leadership, DRIVING, viewed=viewed)
    asked = NodeLockStore(stage.kube, leadership, DRIVING, viewed=viewed)
    met = NodeLockStore(stage.kube, leadership, DRIVING, viewed=viewed, met=[stage.kube_node])

    assert await new.read(stage.kube_node, may_be_prefetched=True) is old
    for nodes, may_be_prefetched in ((new, True), (asked, False), (asked, True), (met, True)):
        found = await nodes.read(stage.kube_node, may_be_prefetched=may_be_prefetched)
        assert found is not None
        assert found.metadata.annotations["example.com/by"] == "us"


async def test_many_nodes_that_wait_take_one_watch_and_a_locked_one_hears_of_whom_its_taint_lets_in(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    came: list[str] = []
    opened: list[str] = []
    watch = stage.kube.watch

    def watched(resource: Resource[Any], *args: Any, **options: Any) -> object:  # noqa: ANN401 - as `watch`
        opened.append(resource.plural)
        return watch(resource, *args, **options)

    monkeypatch.setattr(stage.kube, "watch", watched)
    async with anyio.create_task_group() as tasks:
        watches = PodWatches(stage.kube, DRIVING, tasks, changed=woken.append, came=came.append)
        for number in range(20):
            watches.wait(f"far-{number}", f"far-{number}")
        watches.wait(NAME, stage.kube_node)
        await until(lambda: woken.count(NAME) == 2)  # For it is new, and for the watch is.
        assert {node: woken.count(node) for node in woken} == dict.fromkeys(woken, 2)
        await stage.bound("comes")
        await until(lambda: woken.count(NAME) > 2)
        watches.guard(NAME, stage.kube_node)
        known = len(woken)
        await stage.pod("ordinary")
        await stage.bound("let-in", for_s=3600)
        await until(lambda: bool(came))
        assert len(woken) == known
        for number in range(20):
            watches.stop(f"far-{number}")
        watches.stop(NAME)
    assert (set(woken), set(came)) == ({NAME, *(f"far-{number}" for number in range(20))}, {NAME})
    assert set(opened) == {"pods"}  # Of one that ends by its time the next one goes on.


async def test_a_slurm_node_that_moved_hears_no_more_of_the_node_it_was_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    async with anyio.create_task_group() as tasks:
        watches = PodWatches(stage.kube, DRIVING, tasks, changed=woken.append, came=woken.append)
        watches.wait("moved", "old-home")
        watches.wait("moved", "new-home")
        watches.wait("other", "other-home")
        await until(lambda: len(woken) == 4)  # Each for it is new, and for the watch is.
        for kube_node in ("old-home", "other-home"):
            monkeypatch.setattr(stage, "kube_node", kube_node)
            await stage.bound(kube_node)
        await until(lambda: woken.count("other") > 2)  # A watch tells in order.
        assert woken.count("moved") == 2
        watches.stop("moved")
        watches.stop("other")


async def test_a_lock_is_decided_on_the_view_and_no_node_is_read_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.manager() as viewed:
        assert await stage.acquire(1) == LockGranted()
        asked: list[object] = []
        conflicts: list[ConflictError] = []
        find, patch = stage.kube.find, stage.kube.patch

        async def found(resource: Resource[Any], name: str, namespace: str | None = None) -> object:
            answer = await find(resource, name, namespace)
            if not isinstance(answer, Node) or read(answer, TAINT).value != "locked":  # Else it is granted.
                asked.append(answer)
            return answer

        async def patched(*args: Any, **more: Any) -> object:  # noqa: ANN401 - passed on
            try:
                return await patch(*args, **more)
            except ConflictError as error:
                conflicts.append(error)
                raise

        monkeypatch.setattr(stage.kube, "find", found)
        monkeypatch.setattr(stage.kube, "patch", patched)
        for job in range(1, 50):
            await stage.release(job)
            await stage.stands("false")
            # A view that is behind has the Node read, and so has a kubelet that writes it in between.
            await until(lambda: read(viewed[stage.kube_node], TAINT).value == "false", within_s=PATIENCE_S)
            asked.clear()
            conflicts.clear()
            assert await stage.acquire(job + 1) == LockGranted()
            if not conflicts:
                break
        assert (asked, conflicts) == ([], [])
        monkeypatch.undo()
        await stage.stands("locked")


async def test_the_bus_is_told_that_a_lock_waits_where_it_waits_for_somebody(stage: Stage) -> None:
    told: list[str] = []

    async def receive(message: Message) -> None:
        told.append(message.subject.rpartition(".")[2])

    follow = partial(stage.views.bus.subscribed, receive=receive)
    pending, locked = subjects.facts(CLUSTER, LockPending), subjects.facts(CLUSTER, LockLocked)
    async with follow(pending), follow(locked), stage.manager():
        assert await stage.acquire(1) == LockGranted()
        await until(lambda: told == ["locked"])
        await stage.release(1)
        await stage.stands("false")
        await stage.pod("web", leaves_after_s=1)
        assert await stage.acquire(2) == LockGranted()
        await until(lambda: told == ["locked", "pending", "locked"])


async def test_a_lock_whose_pods_cannot_be_listed_is_told_as_it_stands(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.manager():
        assert await stage.release(1) == Noted()  # It has begun.

        async def unavailable(*_: object, **__: object) -> list[Pod]:
            raise KubeUnavailableError("list pods: no time")

        monkeypatch.setattr(stage.kube, "list_all", unavailable)
        replies: list[Reply] = []

        async def prolog() -> None:
            replies.append(await stage.acquire(1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prolog)
            await stage.stands("pending")
            assert replies == []
            monkeypatch.undo()
        assert replies == [LockGranted()]


@pytest.mark.parametrize("value", ["false", "locked"])
async def test_a_view_that_is_behind_neither_grants_nor_hinders_a_lock(
    stage: Stage, value: LockValue
) -> None:
    holder = Holder(job=2, level="normal", requested_at=now(), granted=now() + timedelta(minutes=1))
    locked = NodeLock(value="locked", holders=(holder,), is_tainted=True)
    nodes = NodeLockStore(stage.kube, Leadership("test", 1, float("inf")), DRIVING)
    stood = await stage.write(nodes, locked if value == "locked" else OPEN)
    await stage.write(nodes, OPEN)  # What the view has is over.
    await stage.kube.patch(NODES, stage.kube_node, {"metadata": {"annotations": {"example.com/by": value}}})
    async with stage.manager(viewed={stage.kube_node: stood}):
        assert await stage.acquire(2) == LockGranted()
        await stage.stands("locked")
        await stage.release(2)
        await stage.stands("false")


async def test_a_prolog_whose_job_is_cancelled_while_it_waits_is_told_at_once(stage: Stage) -> None:
    await stage.pod("slow", leaves_after_s=NEVER_S)
    async with stage.manager(), anyio.create_task_group() as tasks:
        replies: list[Reply] = []

        async def prolog() -> None:
            replies.append(await stage.acquire(1, within_s=PATIENCE_S))

        tasks.start_soon(prolog)
        await stage.stands("pending")
        await stage.says_job(1, "CANCELLED", is_over=True, completes=True)
        await until(lambda: bool(replies))

        assert replies == [JobNotRunning(state="CANCELLED")]
        assert await stage.is_there("slow")
        await stage.stands("false")


async def test_a_former_slurm_node_neither_unlocks_its_node_nor_hides_it_from_the_one_that_has_it_now(
    stage: Stage,
) -> None:
    views, former = stage.views, "old-000-011"
    left = LockState(changed=now(), node=former, kube_node=stage.kube_node, lock="false")
    await stage.says(former, left, views.locks)
    async with stage.manager():
        await stage.says_job(1, "RUNNING", runs=True)
        await stage.stands("locked")
        held = await stage.kube.get(NODES, stage.kube_node)
        found = views.kube_pods.get(NAME)
        assert found is not None
        await stage.says(former, replace(found, pod=former, nodeset="old", phase="gone"), views.kube_pods)
        await until(lambda: views.locks.get(former) is None, within_s=PATIENCE_S)
        assert await stage.lock() == read(held, TAINT)
        await stage.says_job(1, "COMPLETED", is_over=True)
        await stage.stands("false")


OTHER: Final = "other"
"""Another Slurm cluster on the same bus."""


async def test_a_slurm_node_whose_node_has_moved_to_another_cluster_does_not_unlock_it(stage: Stage) -> None:
    views = stage.views
    await views.bus.provision(OTHER, BusSettings())
    pods = StateView(views.bus, OTHER, KubePodState)
    mine = views.kube_pods.get(NAME)
    assert mine is not None
    async with following(pods):
        writer = StateWriter(views.bus, pods, fence=None)
        await writer.record("theirs", replace(mine, pod="theirs", namespace="other"), revision=0)
        await stage.says(NAME, replace(mine, phase="gone"), views.kube_pods)
        await stage.says(
            NAME, LockState(changed=now(), node=NAME, kube_node=stage.kube_node, lock="locked"), views.locks
        )
        theirs = Holder(job=7, level="normal", requested_at=now(), granted=now())
        lock = NodeLock(value="locked", holders=(theirs,), is_tainted=True)
        nodes = NodeLockStore(stage.kube, Leadership("other", 1, float("inf")), DRIVING)
        held = await stage.write(nodes, lock)
        async with stage.manager(others=(pods,)):
            await until(lambda: views.locks.get(NAME) is None, within_s=PATIENCE_S)
        assert await stage.lock() == read(held, TAINT)


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
async def test_a_lock_taint_that_a_stranger_puts_on_an_unlocked_node_goes_and_an_event_says_whose_it_was(
    stage: Stage, effect: str, kubeconfig: Path
) -> None:
    async with stage.manager(), connect("mallory", kubeconfig=kubeconfig) as mallory:
        await until(lambda: stage.views.locks.get(NAME) is not None, within_s=PATIENCE_S)
        body = {"spec": {"taints": [{"key": TAINT.key, "value": TAINT.value, "effect": effect}]}}
        await mallory.patch(NODES, stage.kube_node, body)

        async def is_gone() -> bool:
            return await stage.lock() == OPEN

        await until(is_gone, within_s=PATIENCE_S)  # A look of itself, at a Node without a lock, is later.
        await until(lambda: is_said(stage, "'mallory' (Update at "), within_s=PATIENCE_S)


async def test_a_lock_taint_that_a_stranger_puts_on_a_node_of_no_nodeset_goes_at_once_too(
    stage: Stage, kubeconfig: Path
) -> None:
    async with stage.manager(), connect("mallory", kubeconfig=kubeconfig) as mallory:
        await until(lambda: stage.views.locks.get(NAME) is not None, within_s=PATIENCE_S)
        name = f"{stage.kube_node}-of-none"
        await stage.kube.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        body = {"spec": {"taints": [{"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}]}}
        await mallory.patch(NODES, name, body)

        async def is_gone() -> bool:
            return read(await stage.kube.get(NODES, name), TAINT) == OPEN

        await until(is_gone, within_s=PATIENCE_S)  # A round would take two looks, minutes apart.
        await until(lambda: is_said(stage, name), within_s=PATIENCE_S)
        await stage.kube.delete(NODES, name)


async def is_said(stage: Stage, text: str) -> bool:
    """Whether an Event about a Node says *text*."""
    return text.encode() in await stage.kube.get_raw(EVENTS.path("default"))


async def test_a_lock_taint_that_a_stranger_takes_off_is_put_back_while_a_job_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "HELD_AGAIN_S", 3600.0)  # Nothing but the change has it look.
    async with stage.manager():
        await stage.says_job(1, "RUNNING", runs=True)
        await stage.stands("locked")
        await stage.kube.patch(NODES, stage.kube_node, {"spec": {"taints": None}})

        async def is_back() -> bool:
            return (await stage.lock()).is_tainted

        await until(is_back, within_s=PATIENCE_S)


async def test_an_unlock_that_the_api_server_refuses_is_tried_again_until_it_does_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    patch = stage.kube.patch

    async def refusing(resource: Resource[Any], name: str, *args: Any, **options: Any) -> object:  # noqa: ANN401 - as `patch`
        if resource is NODES and len(refused) < 3:
            refused.append(403 if refused else 422)
            raise KubeRejectedError("admission webhook denied the request", status=refused[-1])
        return await patch(resource, name, *args, **options)

    monkeypatch.setattr(keys, "REFUSED_FIRST_S", 0.05)
    async with stage.manager():
        await stage.says_job(1, "RUNNING", runs=True)
        await stage.stands("locked")
        monkeypatch.setattr(stage.kube, "patch", refusing)
        await stage.says_job(1, "COMPLETED", is_over=True)
        await stage.stands("false")

    assert refused == [422, 403, 403]


async def test_who_has_taken_a_node_over_is_woken_though_the_former_one_stops(stage: Stage) -> None:
    woken: list[str] = []
    async with anyio.create_task_group() as tasks:
        watches = PodWatches(stage.kube, DRIVING, tasks, changed=woken.append, came=woken.append)
        watches.wait("former", stage.kube_node)
        watches.wait(NAME, stage.kube_node)
        watches.stop("former")
        await until(lambda: woken.count(NAME) == 2)  # For it is new, and for the watch is.
        await stage.bound("comes")
        await until(lambda: woken.count(NAME) > 2)
        watches.stop(NAME)


async def test_a_running_job_locks_its_node_without_a_prolog_and_frees_it_when_it_is_over(
    stage: Stage,
) -> None:
    async with stage.manager():
        await stage.says_job(1, "RUNNING", runs=True)
        await stage.stands("locked")
        await stage.says_job(1, "COMPLETED", is_over=True)
        await stage.stands("false")


async def test_locks_whose_bucket_alone_was_lost_are_told_anew_at_once(stage: Stage) -> None:
    views = stage.views
    async with stage.manager():
        await until(lambda: views.locks.get(NAME) is not None, within_s=PATIENCE_S)
        before = views.locks.created
        await views.bus.js.delete_stream(f"KV_{views.locks.bucket}")

        def is_told() -> bool:
            is_anew = views.locks.is_settled and views.locks.created != before
            return is_anew and views.locks.get(NAME) is not None

        await until(is_told, within_s=PATIENCE_S)


async def test_a_released_job_that_the_bus_still_shows_as_running_does_not_lock_again(stage: Stage) -> None:
    async with stage.manager():
        await stage.says_job(1, "RUNNING", runs=True)
        assert await stage.acquire(1) == LockGranted()
        assert await stage.release(1) == Noted()
        await stage.stands("false")
        await stage.says_job(2, "RUNNING", runs=True)  # The node is looked at again.
        await stage.stands("locked")

        assert [found.job for found in (await stage.lock()).holders] == [2]


async def test_a_pod_of_ours_may_stay_while_its_job_lives_and_is_in_the_way_when_it_is_over(
    stage: Stage,
) -> None:
    pod = await stage.pod("placed", bears=True)
    await stage.says_job(5, "RUNNING", runs=True)
    await stage.says_placement(pod, 5)
    async with stage.manager(), stage.syncer(5):
        await stage.stands("locked_strict")
        assert await stage.acquire(6) == LockGranted()
        await stage.says_job(5, "NODE_FAIL", is_over=True)
        waiting = await stage.waits(7)
        await stage.kube.delete(PODS, "placed", stage.namespace)

        assert waiting.in_the_way == (pod.key,)
        assert await stage.acquire(7) == LockGranted()
        assert {found.job for found in (await stage.lock()).holders} == {5, 6, 7}  # 5 until its Pod is gone.
        await stage.says_placement(pod, 5, is_there=False)
        assert [await stage.release(6), await stage.release(7)] == [Noted(), Noted()]
        await stage.stands("false")


async def test_a_pod_beside_which_a_job_starts_is_another_jobs_own_only_by_what_slurm_says_now(
    stage: Stage,
) -> None:
    pod = await stage.pod("placed", bears=True)
    await stage.says_job(5, "RUNNING", runs=True)  # As it was when the syncer was heard last.
    await stage.says_placement(pod, 5)
    async with stage.manager():
        async with stage.syncer(5):
            await stage.stands("locked_strict")  # Its own Pod is in nobody's way.

        unheard = await stage.waits(6, because="does not say whether its job 5 still runs")
        async with stage.syncer() as running:
            ended = await stage.waits(6, because="its placeholder job 5 no longer runs here")
            running.add(5)
            granted = await stage.acquire(6)

        assert unheard.in_the_way == ended.in_the_way == (pod.key,)
        assert granted == LockGranted()


async def test_a_job_that_is_not_on_the_bus_vouches_for_its_pod_as_little(stage: Stage) -> None:
    """Its lock stands, for its Pod is there; Slurm has forgotten it."""
    pod = await stage.pod("placed", bears=True)
    await stage.says_placement(pod, 5)
    async with stage.manager(), stage.syncer(5) as running:
        assert await stage.acquire(5, "strict") == LockGranted()

        running.clear()
        waiting = await stage.waits(6, because="its placeholder job 5 no longer runs here")
        running.add(5)

        assert waiting.in_the_way == (pod.key,)
        assert await stage.acquire(6) == LockGranted()


async def test_a_question_whose_deadline_is_hours_over_is_later_and_says_that_a_clock_is_off(
    stage: Stage,
) -> None:
    async with stage.manager():
        assert await stage.release(1) == Noted()  # It has begun.
        deadline = datetime.now(UTC) - timedelta(hours=3)
        question = AcquireLock(node=NAME, job=1, level="normal", deadline=deadline)

        async def is_told() -> bool:
            reply = await ask_until(stage.views.bus, CLUSTER, question, deadline=anyio.current_time() + 5)
            return isinstance(reply, Later) and "a clock is wrong, synchronise it (NTP)" in reply.reason

        await until(is_told)


@pytest.mark.parametrize("skew_s", [-3600, -30, -5, 5, 30])
async def test_how_long_an_asker_has_left_does_not_depend_on_its_clock(stage: Stage, skew_s: float) -> None:
    async with stage.manager():
        deadline = datetime.now(UTC) + timedelta(seconds=skew_s)
        question = AcquireLock(node=NAME, job=1, level="normal", deadline=deadline, left_s=PATIENCE_S)
        reply = await ask_until(
            stage.views.bus, CLUSTER, question, deadline=anyio.current_time() + PATIENCE_S
        )

    assert reply == LockGranted()


async def test_a_node_of_no_nodeset_is_refused(stage: Stage) -> None:
    async with stage.manager():
        deadline = datetime.now(UTC) + timedelta(seconds=PATIENCE_S)
        question = AcquireLock(node="nobody", job=1, level="normal", deadline=deadline)
        reply = await ask_until(
            stage.views.bus, CLUSTER, question, deadline=anyio.current_time() + PATIENCE_S
        )

    assert isinstance(reply, Refused)
    assert reply.code == "unknown_node"


async def test_where_we_evict_a_job_starts_after_the_others_have_left_and_no_daemon_is_touched(
    stage: Stage,
) -> None:
    await stage.pod("web")
    await stage.pod("log", priority="system-node-critical")
    async with stage.manager(EVICTING, EVICTING_RULES):
        assert await stage.acquire(1) == LockGranted()

        assert not await stage.is_there("web")
        assert await stage.is_there("log")
        late = await stage.kube.get(NODES, stage.kube_node)
        assert [(one.key, one.effect) for one in late.spec.taints if one.key == TAINT.key] == [
            (TAINT.key, "NoSchedule")
        ]


async def test_where_we_evict_a_pod_that_comes_while_a_job_holds_the_node_is_driven_out(stage: Stage) -> None:
    async with stage.manager(EVICTING, EVICTING_RULES):
        assert await stage.acquire(1) == LockGranted()
        await stage.bound("late")  # Past the taint, which the kubelet admits.

        async def has_left() -> bool:
            return not await stage.is_there("late")

        await until(has_left, within_s=PATIENCE_S)
        assert (await stage.lock(EVICTING.taint)).value == "locked"


async def test_a_pod_that_a_budget_protects_is_named_with_it_and_deleted_only_where_a_setting_says_so(
    stage: Stage,
) -> None:
    await stage.budget("guarded")
    await stage.pod("guarded")
    deleting = replace(EVICTING, clearing=Clearing(delete_after_s=1.0))
    async with stage.manager(EVICTING, EVICTING_RULES):
        waiting = await stage.waits(1, because="disruption budget")
        is_left_alone = await stage.is_there("guarded")
    async with stage.manager(deleting, EVICTING_RULES):
        granted = await stage.acquire(1)

    assert is_left_alone
    assert [one.pod for one in waiting.blocking] == [f"{stage.namespace}/guarded"]
    assert granted == LockGranted()
    assert not await stage.is_there("guarded")


@asynccontextmanager
async def deletions(stage: Stage) -> AsyncGenerator[Mapping[str, int]]:
    """Yield by which write each Pod's deletion began, by uid, as of each moment of the context."""
    view, changes = Reflector(stage.kube, PODS, namespace=stage.namespace), Changes(())
    found: dict[str, int] = {}

    def note(_: Pod | None, after: Pod | None) -> tuple[str, ...]:
        if after is not None and after.is_terminating:
            found.setdefault(after.metadata.uid, int(after.metadata.resource_version))
        return ()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.run)
        await view.complete()
        view.follow(changes, note)
        yield found
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        pytest.param(EvictionReason.EVICTING_FOR_SLURM, "is evicted", id="evicted"),
        pytest.param(EvictionReason.DELETING_FOR_SLURM, "refused its eviction for 1 s", id="deleted"),
    ],
)
async def test_events_on_a_pod_and_its_replica_set_name_the_slurm_job_before_the_pod_has_to_go(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, reason: EvictionReason, words: str
) -> None:
    for name in ("LAST_WORDS_S", "LAST_WORDS_MAX_S"):
        monkeypatch.setattr(end_events, name, WITHIN_S)
    owner, pod = await stage.replica_set("web")
    if reason is EvictionReason.DELETING_FOR_SLURM:
        await stage.budget("web")
    deleting = replace(EVICTING, clearing=Clearing(delete_after_s=1.0))
    async with deletions(stage) as deleted, stage.manager(deleting, EVICTING_RULES):
        assert await stage.acquire(17) == LockGranted()
        await until(lambda: pod.metadata.uid in deleted, within_s=PATIENCE_S)
    said = json.loads(await stage.kube.get_raw(EVENTS.path(stage.namespace)))["items"]
    found = {one["involvedObject"]["uid"]: one for one in said if one["reason"] == reason}

    assert found.keys() == {pod.metadata.uid, owner.metadata.uid}
    for one in found.values():
        assert one["message"].startswith(f"Node {stage.kube_node} is locked for Slurm job 17: Pod {pod.key} ")
        assert words in one["message"]
        assert int(one["metadata"]["resourceVersion"]) < deleted[pod.metadata.uid]


async def test_a_dry_run_of_evictions_moves_nobody_and_says_whom_it_would(stage: Stage) -> None:
    await stage.pod("web")
    trying = replace(EVICTING, clearing=Clearing(is_dry_run=True))
    async with stage.manager(trying, EVICTING_RULES):
        waiting = await stage.waits(1, because="dry run")

    assert waiting.in_the_way == (f"{stage.namespace}/web",)
    web = await stage.kube.get(PODS, "web", stage.namespace)
    assert web.metadata.deletion_timestamp is None


def claims(owner: KubeObject, namespace: str = "", **other: str) -> DaemonClaim:
    """Return what a Pod says that names *owner* as its DaemonSet, or something *other*."""
    meta = owner.metadata
    claim = DaemonClaim(namespace or meta.namespace, meta.name, meta.uid)
    return replace(claim, **other)


async def test_where_we_evict_a_daemon_stays_whose_daemonset_is_there(stage: Stage) -> None:
    owner, pod = await stage.daemonset("agent")
    assert daemon_claim(pod) == claims(owner)
    async with stage.manager(EVICTING, EVICTING_RULES):
        assert await stage.acquire(1) == LockGranted()

        assert await stage.is_there(pod.metadata.name)


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
async def test_where_we_evict_whoever_made_up_an_owner_leaves_as_anybody_does(
    stage: Stage, kind: str
) -> None:
    """Kubernetes' garbage collector looks after nobody whose owner is of a group that it does not know."""
    owner = {"apiVersion": "example.com/v1", "kind": kind, "name": "agent", "uid": "1", "controller": True}
    await stage.pod("stays", owners=[owner])
    async with stage.manager(EVICTING, EVICTING_RULES):
        assert await stage.acquire(1) == LockGranted()

        assert not await stage.is_there("stays")


async def test_a_daemon_is_known_by_its_daemonset_also_before_a_view_has_it(stage: Stage) -> None:
    owner, _ = await stage.daemonset("agent")
    forged = {
        "of none": claims(owner, name="nobody"),
        "of another uid": claims(owner, uid="00000000-0000-0000-0000-000000000000"),
        "of another namespace": claims(owner, "default"),
        "of a path": claims(owner, name="../../pods"),
        "of no uid": claims(owner, uid=""),
    }
    daemonsets = DaemonSetView(stage.kube)

    before = await daemonsets.judge({"true": claims(owner)} | forged)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemonsets.run)
        assert await daemonsets.judge({"true": claims(owner)} | forged) == before
        tasks.cancel_scope.cancel()

    assert before == Daemons(proven=frozenset({"true"}))


@pytest.fixture
async def blind(stage: Stage, kube_lab: KubeLab, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    """A client that may do what a lock needs, but not read DaemonSets."""
    where, name = ("-n", stage.namespace), stage.namespace
    rights = ("--verb=get,list,watch,patch,create,delete", "--resource=nodes,pods,pods/eviction,events")
    kube_lab.kubectl("create", "clusterrole", name, *rights)
    kube_lab.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={name}:default"
    )
    shown = json.loads(kube_lab.kubectl("config", "view", "--raw", "-o", "json"))
    shown["users"][0]["user"] = {"token": kube_lab.kubectl(*where, "create", "token", "default").strip()}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(shown))
    try:
        async with connect("test", kubeconfig=path) as client:
            yield client
    finally:
        kube_lab.kubectl("delete", "clusterrolebinding,clusterrole", name)


POLICIES: Final = Resource(
    group="admissionregistration.k8s.io",
    kind="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    is_namespaced=False,
    struct=KubeObject,
)
BINDINGS: Final = Resource(
    group=POLICIES.group,
    kind="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    is_namespaced=False,
    struct=KubeObject,
)


@asynccontextmanager
async def refused_by_right(stage: Stage, kube_lab: KubeLab) -> AsyncGenerator[None]:
    """Take from the client `blind`, while the context lasts, the right to write."""

    def allow(*verbs: str) -> None:
        change = [{"op": "replace", "path": "/rules/0/verbs", "value": verbs}]
        kube_lab.kubectl("patch", "clusterrole", stage.namespace, "--type=json", "-p", json.dumps(change))

    allow("get", "list", "watch")
    try:
        yield
    finally:
        allow("get", "list", "watch", "patch", "create", "delete")


@asynccontextmanager
async def refused_by_rule(stage: Stage, _kube_lab: KubeLab) -> AsyncGenerator[None]:
    """Have an admission policy refuse, while the context lasts, what the client `blind` writes on Nodes."""
    name, user = stage.namespace, f"system:serviceaccount:{stage.namespace}:default"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "who", "expression": f"request.userInfo.username == '{user}'"}],
            "validations": [{"expression": "false", "message": "not now"}],
        },
    }
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    await stage.kube.create(POLICIES, policy)
    await stage.kube.create(BINDINGS, binding)
    try:
        yield
    finally:
        await stage.kube.delete(BINDINGS, name)
        await stage.kube.delete(POLICIES, name)


@pytest.mark.parametrize(
    ("refused", "status"),
    [pytest.param(refused_by_right, 403, id="by right"), pytest.param(refused_by_rule, 422, id="by rule")],
)
async def test_an_unlock_that_a_right_or_a_rule_of_the_api_server_refuses_is_tried_again_later_each_time(
    stage: Stage,
    blind: KubeClient,
    *,
    kube_lab: KubeLab,
    refused: Callable[[Stage, KubeLab], AbstractAsyncContextManager[None]],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch = blind.patch
    tries: list[tuple[int, float]] = []

    async def watched(resource: Resource[Any], *args: Any, **options: Any) -> object:  # noqa: ANN401 - as `patch`
        try:
            return await patch(resource, *args, **options)
        except KubeRejectedError as error:
            tries.append((error.status, anyio.current_time()))
            raise

    async def is_refused() -> bool:
        try:
            await patch(NODES, stage.kube_node, {"metadata": {"annotations": {"probe": None}}})
        except KubeRejectedError:
            return True
        return False

    async with stage.manager(kube=blind):
        await stage.says_job(1, "RUNNING", runs=True)
        await stage.stands("locked")
        monkeypatch.setattr(blind, "patch", watched)
        async with refused(stage, kube_lab):
            await until(is_refused, within_s=PATIENCE_S)
            await stage.says_job(1, "COMPLETED", is_over=True)
            await until(lambda: len(tries) >= 3, within_s=PATIENCE_S)
            locked = await stage.lock()
        await stage.stands("false")

    first, second, third = tries[:3]
    assert {of for of, _ in tries} == {status}
    assert second[1] - first[1] >= keys.REFUSED_FIRST_S
    assert third[1] - second[1] >= 2 * keys.REFUSED_FIRST_S
    assert (locked.value, locked.is_tainted) == ("locked", True)


async def test_while_daemonsets_cannot_be_read_nobody_who_may_be_a_daemon_is_asked_to_leave_or_ignored(
    stage: Stage, blind: KubeClient
) -> None:
    _, pod = await stage.daemonset("agent")
    await stage.pod("web")
    async with stage.manager(EVICTING, EVICTING_RULES, kube=blind):
        waiting = await stage.waits(1, because="it is not known whether its DaemonSet exists")

        async def has_left() -> bool:
            return not await stage.is_there("web")

        await until(has_left, within_s=PATIENCE_S)
        assert pod.key in waiting.in_the_way
        assert (
            await stage.kube.get(PODS, pod.metadata.name, stage.namespace)
        ).metadata.deletion_timestamp is None
        assert (await stage.lock(EVICTING.taint)).value == "pending"


async def test_daemons_that_do_not_tolerate_the_lock_are_found_when_a_manager_begins(stage: Stage) -> None:
    labels = {"app": "daemon"}
    spec = {"nodeSelector": {"nobody": "here"}, "containers": [{"name": "main", "image": "x"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "daemon"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    await stage.kube.create(DAEMONSETS, body, stage.namespace)
    async with stage.manager():
        await until(lambda: driven_out_daemons() > 0, within_s=PATIENCE_S)


def driven_out_daemons() -> float:
    """Return what the gauge says."""
    return REGISTRY.get_sample_value("sunk_lock_daemonsets_driven_out", {"slurm_cluster": CLUSTER}) or 0.0


async def test_a_person_learns_whom_a_lock_would_drive_out_and_why_one_is_not_there_yet(stage: Stage) -> None:
    await stage.pod("slow", leaves_after_s=NEVER_S)
    async with stage.manager():
        before = await stage.explain()
        await stage.waits(1, because="grace period")
        meanwhile = await stage.explain()
        await stage.kube.delete(PODS, "slow", stage.namespace, grace_period_s=0)
        assert await stage.acquire(1) == LockGranted()
        after = await stage.explain()

    assert [one.what for one in before.findings] == [
        "not locked",
        "a lock would have Kubernetes remove 1 Pods",
    ]
    assert before.findings[1].because == f"{stage.namespace}/slow"
    assert [(one.what, one.because) for one in meanwhile.findings] == [
        ("not locked for job 1 yet (normal)", f"{stage.namespace}/slow: grace period of {NEVER_S + 5} s")
    ]
    assert [one.what for one in after.findings] == ["locked for jobs 1"]
