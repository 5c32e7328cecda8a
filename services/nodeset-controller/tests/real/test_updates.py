"""Updates, scale-downs and deletions of a NodeSet over real Nodes, with the service as its own process.

The test plays Slurm and its syncer: it drains who is condemned, says what runs, and is asked before a Pod
goes. A Pod that goes while a job runs on its node is a lost job.
"""

import json
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from msgspec import to_builtins

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState, NodeSliceState
from sunk_events.placements import PlacementState
from sunk_events.requests import ConfirmNode, NodeConfirmed, Noted, RequeueJob
from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient, connect
from sunk_kube.crds import crds
from sunk_kube.errors import KubeBusyError, KubeNotFoundError, KubeRejectedError
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import KubeObject, condition
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import (
    CONTROLLER_REVISIONS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTION_BUDGETS,
    EVENTS,
    NAMESPACES,
    NODES,
    NODESETS,
    NODESLICES,
    PODS,
    Resource,
)
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.reasons import EvictionReason
from sunk_nodeset_controller.testing import Service
from sunk_runtime.changes import Changes
from sunk_runtime.jetstream import BusSettings
from sunk_runtime.jetstream import connect as connect_bus
from sunk_runtime.requests import answering
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CLUSTER: Final = "lab"
ROLE: Final = "test.example/updates"
PATIENCE_S: Final = WITHIN_S
GRACE_S: Final = 1
"""Between the wish that a Pod goes and its deletion timestamp."""


class Slurm:
    """Slurm and its syncer, as far as NodeSets see them."""

    def __init__(
        self,
        pods: StateView[KubePodState],
        slices: StateView[NodeSliceState],
        writer: StateWriter[SlurmNodeState],
        placements: StateWriter[PlacementState],
        states: StateWriter[SlurmJobState],
    ) -> None:
        self.pods = pods
        self.slices = slices
        self.jobs: set[str] = set()
        """Nodes on which a job runs."""
        self.lost: list[str] = []
        self.confirmed: list[str] = []
        self._writer = writer
        self._placements = placements
        self._states = states
        self.running: dict[int, str] = {}
        """The node of each job that is told of by itself."""
        self.takes: set[str] | None = None
        """The Pods, by uid, whose slurmd Slurm takes; None: any."""
        self.requeued: list[tuple[int, str, bool]] = []
        """Which job was requeued, on which node, and whether that was drained then."""

    async def run_job(
        self, job: int, node: str, *, partition: str = "main", qos: str = "normal", hours: int = 0
    ) -> None:
        """Say that a job runs, and has for *hours*."""
        self.running[job] = node
        self.jobs.add(node)
        now = datetime.now(UTC)
        await self._say_job(
            SlurmJobState(
                changed=now,
                job=job,
                state="RUNNING",
                nodes=node,
                partition=partition,
                qos=qos,
                started=now - timedelta(hours=hours),
                is_running=True,
            )
        )

    async def end_job(self, job: int) -> None:
        """Say that a job waits in the queue again."""
        node = self.running.pop(job)
        await self._say_job(SlurmJobState(changed=datetime.now(UTC), job=job, state="PENDING"))
        if node not in self.running.values():
            self.jobs.discard(node)

    async def requeue(self, question: RequeueJob) -> Noted:
        """Do as the syncer does; asked again before the bus has said so, nothing."""
        if question.job in self.running:
            self.requeued.append((question.job, question.node, self.is_draining(question.node)))
            await self.end_job(question.job)
        return Noted()

    async def _say_job(self, state: SlurmJobState) -> None:
        view, key = self._states.view, str(state.job)
        await view.complete()
        await self._states.record(key, state, revision=view.revision(key))

    async def place(self, placed_pod: Pod, node: str) -> None:
        """Say that Slurm has placed *placed_pod* on the Slurm node *node*."""
        meta = placed_pod.metadata
        state = PlacementState(
            changed=datetime.now(UTC),
            uid=meta.uid,
            namespace=meta.namespace,
            pod=meta.name,
            phase="bound",
            node=node,
        )
        await self._placements.view.complete()
        await self._placements.record(meta.uid, state, revision=0)

    def members(self) -> set[str]:
        """Return the Slurm nodes that there shall be."""
        return {entry.node for one in self.slices.values() for entry in one.entries}

    def is_busy(self, name: str) -> bool:
        """Whether Slurm says that a job runs on a node."""
        state = self._writer.view.get(name)
        return state is not None and state.is_busy

    def is_draining(self, name: str) -> bool:
        """Whether Slurm says that a node is drained while a job runs on it."""
        state = self._writer.view.get(name)
        return state is not None and state.is_drain and state.is_busy

    async def run(self) -> None:
        """Follow the Pods and say what becomes of their nodes."""
        await self.pods.complete()
        await self._writer.view.complete()
        while True:
            for pod in self.pods.values():
                await self._tell(pod)
            await anyio.sleep(0.05)

    async def _tell(self, pod: KubePodState) -> None:
        if pod.phase in {"terminating", "gone"} and pod.pod in self.jobs:
            self.lost.append(pod.pod)
            self.jobs.discard(pod.pod)
        is_drain = pod.is_condemned or pod.is_cordoned or not pod.is_ready
        is_busy = pod.pod in self.jobs
        is_taken = self.takes is None or pod.uid in self.takes
        word = "IDLE" if is_taken else "DOWN"
        before = self._writer.view.get(pod.pod)
        if before is not None and (before.is_drain, before.is_busy, before.state) == (
            is_drain,
            is_busy,
            word,
        ):
            return
        state = SlurmNodeState(
            changed=datetime.now(UTC), node=pod.pod, state=word, is_drain=is_drain, is_busy=is_busy
        )
        await self._writer.record(pod.pod, state, revision=self._writer.view.revision(pod.pod))

    async def confirm(self, question: ConfirmNode) -> NodeConfirmed:
        """Answer as the syncer does, from a fresh look."""
        pod = self.pods.get(question.node)
        is_fine = pod is not None and pod.is_condemned and question.node not in self.jobs
        if is_fine:
            self.confirmed.append(question.node)
        return NodeConfirmed(node=question.node, is_known=True, is_drained_and_idle=is_fine)


class Seen:
    """What a watch of the Pods has shown."""

    def __init__(self) -> None:
        self.serving: list[int] = []
        """How many Pods served, as of each change of one."""
        self.condemned: set[str] = set()
        self.ready: dict[str, datetime] = {}
        """When each Pod became ready, by uid."""
        self.deleted: dict[str, datetime] = {}
        """When each Pod's deletion was asked for, by uid."""

    def note(self, pods: list[Pod], changed: Pod | None) -> None:
        """Take in a change after which there are *pods*."""
        if changed is not None:
            self._note(changed)
        self.serving.append(sum(map(self._is_serving, pods)))

    def _note(self, changed: Pod) -> None:
        meta = changed.metadata
        ready = condition(changed.status.conditions, wk.CONDITION_READY)
        if ready is not None and ready.status == "True" and ready.last_transition_time is not None:
            self.ready.setdefault(meta.uid, ready.last_transition_time)
        if meta.deletion_timestamp is not None:
            self.deleted.setdefault(meta.uid, meta.deletion_timestamp - timedelta(seconds=GRACE_S))
        if wk.ANNOTATION_CONDEMNED in meta.annotations:
            self.condemned.add(meta.name)

    def _is_serving(self, pod: Pod) -> bool:
        """Whether *pod* came up, and nobody takes it away; a kubelet that stalls is no update."""
        meta = pod.metadata
        return (
            meta.uid in self.ready
            and not pod.is_terminating
            and wk.ANNOTATION_CONDEMNED not in meta.annotations
        )


class Stage:
    """Everything that a story needs."""

    def __init__(self, kube: KubeClient, service: Service, namespace: str, slurm: Slurm) -> None:
        self.kube = kube
        self.service = service
        self.namespace = namespace
        self.slurm = slurm

    async def pods(self) -> list[Pod]:
        return await self.kube.list_all(PODS, self.namespace, labels=wk.LABEL_NODESET)

    async def nodeset(self) -> NodeSet:
        return await self.kube.get(NODESETS, "gpu", self.namespace)

    async def change(self, spec: dict[str, Any]) -> None:
        await self.kube.patch(NODESETS, "gpu", {"spec": spec}, self.namespace)

    async def until(self, holds: Callable[[NodeSet], bool]) -> None:
        async def is_so() -> bool:
            return holds(await self.nodeset())

        await until(is_so, within_s=PATIENCE_S)

    async def until_pods(self, holds: Callable[[list[Pod]], bool]) -> None:
        async def is_so() -> bool:
            return holds(await self.pods())

        await until(is_so, within_s=PATIENCE_S)

    async def is_whole(self, count: int) -> None:
        """Wait until *count* Pods are ready, updated, and none is condemned."""
        await self.until(
            lambda found: (
                found.status.number_ready
                == found.status.updated_number_scheduled
                == found.status.current_number_scheduled
                == count
                and not found.status.number_condemned
                and found.status.observed_generation == found.metadata.generation
            )
        )

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator["Seen"]:
        """Yield what each change of a Pod shows while the context lasts, none left out."""
        view = Reflector(self.kube, PODS, namespace=self.namespace, labels=wk.LABEL_NODESET)
        seen, changes = Seen(), Changes(())

        def note(_: Pod | None, after: Pod | None) -> tuple[str, ...]:
            seen.note(view.values(), after)
            return ()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(view.run)
            await view.complete()
            view.follow(changes, note)
            seen.serving.clear()  # Those were looked at one after the other.
            yield seen
            tasks.cancel_scope.cancel()

    def restart(self) -> None:
        """Kill the service between any two of its lines, and start it again."""
        self.service.end(signal.SIGKILL)
        self.service.start()

    def condemned(self) -> set[str]:
        return {pod.pod for pod in self.slurm.pods.values() if pod.is_condemned}


@pytest.fixture(scope="module")
def kubeconfig(kube_lab: KubeLab) -> Path:
    return Path(kube_lab.kubeconfig)


@pytest.fixture
def nats(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@asynccontextmanager
async def playing(nats: NatsServer) -> AsyncGenerator[Slurm]:
    settings = BusSettings(url=nats.url)
    async with connect_bus(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        pods, states = StateView(bus, CLUSTER, KubePodState), StateView(bus, CLUSTER, SlurmNodeState)
        slices = StateView(bus, CLUSTER, NodeSliceState)
        placements = StateView(bus, CLUSTER, PlacementState)
        jobs = StateView(bus, CLUSTER, SlurmJobState)
        slurm = Slurm(
            pods,
            slices,
            StateWriter(bus, states, fence=None),
            StateWriter(bus, placements, fence=None),
            StateWriter(bus, jobs, fence=None),
        )
        async with (
            following(pods, states, slices, placements, jobs),
            answering(bus, CLUSTER, ConfirmNode, slurm.confirm),
            answering(bus, CLUSTER, RequeueJob, slurm.requeue),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(slurm.run)
            yield slurm
            tasks.cancel_scope.cancel()


@pytest.fixture
async def stage(nats: NatsServer, kubeconfig: Path, tmp_path: Path) -> AsyncGenerator[Stage]:
    """Three Nodes, one NodeSet for them, the service; all gone afterwards."""
    async with connect("test", kubeconfig=kubeconfig) as kube:
        for crd in crds():
            await kube.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-updates-"}}
        namespace = (await kube.create(NAMESPACES, body)).metadata.name
        settings = {
            "CLUSTERS": CLUSTER,
            "KUBECONFIG": str(kubeconfig),
            "NATS_URL": nats.url,
            "HTTP_PORT": "0",
            "LEASE_NAMESPACE": "default",  # The service outlives the namespace.
            "LEASE_NAME": namespace,
            "SLURM_STALE_S": "3600",  # No statistics are played: a slow test is no silence.
            "SLURM_UNKNOWN_S": "7200",
        }
        service = Service(settings, tmp_path / "service.log")
        service.start()
        try:
            await label(kube, namespace)
            await create(kube, namespace)
            async with playing(nats) as slurm:
                yield Stage(kube, service, namespace, slurm)
        finally:
            with anyio.move_on_after(PATIENCE_S, shield=True):
                await label(kube, None)
                await kube.delete(NAMESPACES, namespace)
                await until(lambda: is_empty(kube, namespace), within_s=PATIENCE_S)
            service.end(signal.SIGTERM)
            with anyio.move_on_after(PATIENCE_S, shield=True):
                await unlock(kube)
        assert not service.bugs()


async def unlock(kube: KubeClient) -> None:
    """Take away the locks of jobs that ran: no statistics are played, so nobody learns that they end."""
    marks: dict[str, None] = dict.fromkeys((wk.ANNOTATION_LOCK, wk.ANNOTATION_LOCK_HOLDERS))
    for node in await kube.list_all(NODES):
        others = [taint for taint in node.spec.taints if taint.key != wk.TAINT_LOCK]
        if len(others) < len(node.spec.taints):
            body = {"metadata": {"annotations": marks}, "spec": {"taints": to_builtins(others)}}
            await kube.patch(NODES, node.metadata.name, body)


async def label(kube: KubeClient, value: str | None) -> None:
    for node in await kube.list_all(NODES):
        await kube.patch(NODES, node.metadata.name, {"metadata": {"labels": {ROLE: value}}})


async def is_empty(kube: KubeClient, namespace: str) -> bool:
    return not await kube.list_all(NODESETS, namespace) and not await kube.list_all(PODS, namespace)


HARD_TO_SPELL: Final = "a && b <c> > 'd' \"e\": \\ # \t\n\x01\x7f\x85\u2028\ufeff\uffff é \U0001f600"
"""JSON and YAML, Go and Python write and read some of it in different ways."""


async def create(
    kube: KubeClient, namespace: str, name: str = "gpu", cpu: str | None = None, **more: object
) -> None:
    container: dict[str, Any] = {
        "name": "slurmd",
        "image": "localhost/sunk-pause:1",
        "env": [{"name": "HOOK", "value": HARD_TO_SPELL}],
    }
    if cpu is not None:
        container["resources"] = {"requests": {"cpu": cpu}}
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
        "nodeSelector": {ROLE: namespace},
    }
    body = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": name},
        "spec": {
            **more,
            "cluster": CLUSTER,
            "template": {"spec": spec},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}},
        },
    }
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await kube.create(NODESETS, body, namespace)
            except KubeNotFoundError:  # The definition is not served yet.
                await anyio.sleep(0.1)
            else:
                return


NEW_TEMPLATE: Final = {"template": {"metadata": {"annotations": {"test.example/version": "2"}}}}


async def test_an_update_reaches_every_node_and_loses_no_job_though_the_controller_is_killed(
    stage: Stage,
) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()}
    stage.slurm.jobs |= before.keys()
    async with stage.watching() as seen:
        await stage.change(NEW_TEMPLATE)
        for step in ("condemned", "confirmed", "deleted"):
            await until(lambda: bool(stage.condemned() & stage.slurm.jobs), within_s=PATIENCE_S)
            chosen = stage.condemned() & stage.slurm.jobs
            if step == "condemned":
                stage.restart()
            stage.slurm.jobs -= chosen  # Each job ends when its node is the one that the update waits for.
            if step == "confirmed":
                await until(lambda chosen=chosen: chosen <= set(stage.slurm.confirmed), within_s=PATIENCE_S)
                stage.restart()
            if step == "deleted":
                uids = {before[name] for name in chosen}
                await stage.until_pods(
                    lambda pods, uids=uids: (
                        not any(pod.metadata.uid in uids and not pod.is_terminating for pod in pods)
                    )
                )
                stage.restart()
        await stage.is_whole(3)

    after = {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()}
    history = await stage.kube.list_all(CONTROLLER_REVISIONS, stage.namespace)
    assert sorted(one.revision for one in history) == [1, 2]
    assert (stage.slurm.lost, min(seen.serving)) == ([], 2)
    assert before.keys() == after.keys() == set(stage.slurm.confirmed)
    assert not set(before.values()) & set(after.values())


async def test_a_moment_without_readiness_takes_no_more_pods_away_than_an_update_may(stage: Stage) -> None:
    await stage.is_whole(3)
    pods = await stage.pods()
    stage.slurm.jobs |= {pod.metadata.name for pod in pods}
    await until(lambda: all(stage.slurm.is_busy(pod.metadata.name) for pod in pods), within_s=PATIENCE_S)
    await stage.until_pods(lambda pods: all(_says(pod, wk.CONDITION_SLURM_RUNNING, "True") for pod in pods))
    async with stage.watching() as seen:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        away = {"type": wk.CONDITION_READY, "status": "False", "lastTransitionTime": moment}
        body = {"status": {"conditions": [away]}}

        async def are_away() -> bool:
            """As Kubernetes does where kubelets are cut off. Each kubelet of ours soon says otherwise."""
            for pod in pods:
                name = pod.metadata.name
                await stage.kube.patch_status(PODS, name, body, stage.namespace, kind="strategic")
            return not any(pod.is_ready for pod in await stage.pods())

        await until(are_away, within_s=PATIENCE_S)
        await stage.change(NEW_TEMPLATE)
        await until(lambda: bool(seen.condemned), within_s=PATIENCE_S)
        await stage.until_pods(lambda pods: all(pod.is_ready for pod in pods))
        await stage.until(lambda found: found.status.number_ready == 3)
        assert len(seen.condemned) == 1
        stage.slurm.jobs.clear()
        await stage.is_whole(3)

    assert (stage.slurm.lost, min(seen.serving)) == ([], 2)


def _says(pod: Pod, kind: str, status: str) -> bool:
    found = condition(pod.status.conditions, kind)
    return found is not None and found.status == status


async def test_a_template_that_slurm_rejects_stops_at_the_first_pod_until_it_is_mended(stage: Stage) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.uid for pod in await stage.pods()}
    stage.slurm.takes = set(before)
    await stage.change(NEW_TEMPLATE)
    await stage.until(
        lambda found: "Slurm cannot use the nodes of these updated Pods" in said(found, "Updated")
    )
    await stage.until(lambda found: found.status.number_ready == 3)
    found, after = await stage.nodeset(), {pod.metadata.uid for pod in await stage.pods()}

    assert (len(after & before), found.status.updated_number_scheduled, stage.condemned()) == (2, 1, set())
    assert "(DOWN). The update waits. Fix them, change the template" in said(found, "Updated")
    stage.slurm.takes = None
    await stage.is_whole(3)
    assert not before & {pod.metadata.uid for pod in await stage.pods()}


async def test_a_node_that_fails_as_its_pod_goes_for_an_update_stops_it_until_it_is_back(
    stage: Stage, kube_lab: KubeLab
) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.name: pod for pod in await stage.pods()}
    stage.slurm.jobs |= before.keys()
    await until(lambda: all(map(stage.slurm.is_busy, before)), within_s=PATIENCE_S)
    async with stage.watching() as seen:
        await stage.change(NEW_TEMPLATE)
        await until(lambda: bool(seen.condemned), within_s=PATIENCE_S)
        (first,) = seen.condemned
        kube_node = before[first].spec.node_name
        kube_lab.stop_kubelet(kube_node)
        try:
            stage.slurm.jobs.clear()
            words = f"became not ready during the update count as unavailable: {kube_node}."
            await stage.until(lambda found: words in said(found, "Updated"))
            stage.restart()
            await stage.until(lambda found: words in said(found, "Updated"))
            left = {pod.metadata.uid for pod in await stage.pods() if not pod.is_terminating}
        finally:
            kube_lab.start_node(kube_node)

        assert left == {pod.metadata.uid for name, pod in before.items() if name != first}
        assert seen.condemned == {first}
        await stage.is_whole(3)
    assert stage.slurm.lost == []


async def test_with_ondelete_a_template_reaches_only_what_is_deleted_by_hand(stage: Stage) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()}
    chosen = min(before)
    async with stage.watching() as seen:
        await stage.change({**NEW_TEMPLATE, "updateStrategy": {"type": "OnDelete", "rollingUpdate": None}})
        await stage.until(
            lambda found: (
                found.status.observed_generation == found.metadata.generation
                and found.status.updated_number_scheduled == 0
                and "0 of 3 Pods have the current template" in said(found, "Updated")
            )
        )
        await stage.kube.delete(PODS, chosen, stage.namespace)
        await stage.until(
            lambda found: found.status.updated_number_scheduled == 1 and found.status.number_ready == 3
        )
        after = {pod.metadata.name: pod.metadata.uid for pod in await stage.pods()}

    assert {name for name in before if before[name] != after[name]} == {chosen}
    assert (after.keys(), seen.condemned) == (before.keys(), set())


async def test_the_next_pod_is_replaced_when_the_one_before_was_ready_for_long_enough(stage: Stage) -> None:
    await stage.is_whole(3)
    least = timedelta(seconds=4)
    async with stage.watching() as seen:
        await until(lambda: len(seen.ready) == 3, within_s=PATIENCE_S)
        old = set(seen.ready)
        # A Pod that is not available yet would cost nothing more.
        last = max(seen.ready.values())
        await until(lambda: datetime.now(UTC) - last > least + timedelta(seconds=2), within_s=PATIENCE_S)
        await stage.change({**NEW_TEMPLATE, "minReadySeconds": int(least.total_seconds())})
        await stage.is_whole(3)
        await until(lambda: len(seen.ready) == 6 and old <= seen.deleted.keys(), within_s=PATIENCE_S)

    replaced = sorted(seen.deleted[uid] for uid in old)
    first, second, _ = sorted(since for uid, since in seen.ready.items() if uid not in old)
    assert replaced[1] - first >= least
    assert replaced[2] - second >= least


@pytest.mark.timeout(900)
async def test_old_templates_go_and_those_that_pods_were_made_of_stay(stage: Stage) -> None:
    await stage.is_whole(3)
    busy = min(pod.metadata.name for pod in await stage.pods())
    stage.slurm.jobs.add(busy)
    rolling = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 3}}}
    await stage.change({**rolling, "revisionHistoryLimit": 1})

    async def is_history(*numbers: int) -> bool:
        found = await stage.kube.list_all(CONTROLLER_REVISIONS, stage.namespace)
        return sorted(one.revision for one in found) == list(numbers)

    # The first is that of the Pod which its job keeps; the newest of the others stays. Each has a letter that
    # the API server spells otherwise in what it stores than in what it answers.
    for version, numbers in ((2, (1, 2)), (3, (1, 2, 3)), (4, (1, 3, 4))):
        await stage.change(
            {"template": {"metadata": {"annotations": {"test.example/version": f"<{version}>"}}}}
        )
        await stage.until(
            lambda found: (
                found.status.observed_generation == found.metadata.generation
                and found.status.updated_number_scheduled == 2
                and found.status.number_ready == 3
            )
        )
        await until(lambda numbers=numbers: is_history(*numbers), within_s=PATIENCE_S)
    stage.slurm.jobs.clear()
    await until(lambda: is_history(3, 4), within_s=PATIENCE_S)
    # A template that comes back is the newest again, so that the one that it was to mend goes first.
    await stage.change({"template": {"metadata": {"annotations": {"test.example/version": "<3>"}}}})
    await until(lambda: is_history(4, 5), within_s=PATIENCE_S)
    await stage.is_whole(3)
    await stage.change({"template": {"metadata": {"annotations": {"test.example/version": "5"}}}})
    await until(lambda: is_history(5, 6), within_s=PATIENCE_S)
    await stage.change({"revisionHistoryLimit": 0})
    await until(lambda: is_history(6), within_s=PATIENCE_S)
    await stage.is_whole(3)
    assert stage.slurm.lost == []


async def test_a_pod_on_a_node_that_no_longer_fits_is_counted_and_stays(stage: Stage) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.uid for pod in await stage.pods()}
    kube_node = min(node.metadata.name for node in await stage.kube.list_all(NODES))

    async def fits(role: str | None) -> tuple[int, ...]:
        await stage.kube.patch(NODES, kube_node, {"metadata": {"labels": {ROLE: role}}})
        count = 3 if role is not None else 2
        await stage.until(lambda found: found.status.number_feasible == count)
        status = (await stage.nodeset()).status
        return status.number_misscheduled, status.current_number_scheduled, status.number_ready

    assert await fits(None) == (1, 3, 3)
    assert await fits(stage.namespace) == (0, 3, 3)
    assert {pod.metadata.uid for pod in await stage.pods()} == before


async def test_an_update_requeues_the_jobs_that_its_rules_name_and_waits_for_the_others(stage: Stage) -> None:
    await stage.is_whole(3)
    first, second, third = sorted(pod.metadata.name for pod in await stage.pods())
    rules = {"partitions": ["low"], "qos": ["scavenger"], "runningSeconds": 3600}
    await stage.change({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 3, "requeue": rules}}})
    await stage.slurm.run_job(11, first, partition="low")
    await stage.slurm.run_job(12, second, qos="scavenger")
    await stage.slurm.run_job(13, third, hours=2)
    await stage.slurm.run_job(14, third)
    await until(lambda: all(map(stage.slurm.is_busy, (first, second, third))), within_s=PATIENCE_S)
    await stage.change(NEW_TEMPLATE)
    await until(lambda: stage.slurm.running.keys() == {14}, within_s=PATIENCE_S)
    await stage.until(lambda found: found.status.updated_number_scheduled == 2)
    await until(lambda: stage.condemned() == {third}, within_s=PATIENCE_S)
    await stage.slurm.end_job(14)
    await stage.is_whole(3)

    assert sorted(stage.slurm.requeued) == [(11, first, True), (12, second, True), (13, third, True)]
    assert stage.slurm.lost == []


async def test_a_smaller_set_waits_for_its_jobs_and_a_larger_one_takes_its_names_back(stage: Stage) -> None:
    await stage.is_whole(3)
    names = {pod.metadata.name for pod in await stage.pods()}
    stage.slurm.jobs |= names
    await stage.change({"replicas": 2})
    await until(lambda: len(stage.condemned()) == 1, within_s=PATIENCE_S)
    (leaving,) = stage.condemned()
    kept = len(await stage.pods())
    stage.slurm.jobs.discard(leaving)
    await stage.is_whole(2)
    await until(lambda: has_slices(stage, {name: name == leaving for name in names}), within_s=PATIENCE_S)
    await until(lambda: stage.slurm.members() == names - {leaving}, within_s=PATIENCE_S)
    await until(lambda: stage.slurm.pods.get(leaving) is None, within_s=PATIENCE_S)
    await stage.change({"replicas": None})
    await stage.is_whole(3)

    assert (kept, stage.slurm.lost) == (3, [])
    assert {pod.metadata.name for pod in await stage.pods()} == names
    await until(lambda: stage.slurm.members() == names, within_s=PATIENCE_S)


async def has_slices(stage: Stage, wanted: dict[str, bool]) -> bool:
    """Whether the slices hold these Slurm nodes, and which of them are released."""
    slices = await stage.kube.list_all(NODESLICES, stage.namespace)
    return {entry.name: entry.released for one in slices for entry in one.nodes} == wanted


async def test_a_guest_that_cannot_be_evicted_holds_up_its_own_node_only(stage: Stage) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.name: pod for pod in await stage.pods()}
    stage.slurm.jobs |= before.keys()
    await stage.change(NEW_TEMPLATE)
    rolling = {"maxUnavailable": 2, "placeholders": "evict"}
    await stage.change({"updateStrategy": {"rollingUpdate": rolling}})
    await until(lambda: len(stage.condemned()) == 2, within_s=PATIENCE_S)
    stuck, other = sorted(stage.condemned())
    placed_pod = await make_guest(stage, before[stuck].spec.node_name)
    await stage.slurm.place(placed_pod, stuck)
    why = f"{placed_pod.key} cannot be evicted: "
    await stage.until(lambda found: why in said(found, "Updated"))
    stage.slurm.jobs.discard(other)
    await stage.until(lambda found: found.status.updated_number_scheduled == 1)
    await stage.until_pods(lambda pods: sum(pod.is_ready for pod in pods) == 3)

    assert why in said(await stage.nodeset(), "Updated")
    assert stuck in {pod.metadata.name for pod in await stage.pods() if is_the_same(pod, before[stuck])}
    emptied = f"an update of NodeSet {stage.namespace}/gpu empties Slurm node {stuck}"
    reported = [f"{emptied}: Pod {placed_pod.key} is evicted"]

    async def is_reported() -> bool:
        return await told_of(stage, placed_pod) == reported

    await until(is_reported, within_s=PATIENCE_S)  # If not taken in time, by a later try.
    for name in BUDGETS:
        await stage.kube.delete(DISRUPTION_BUDGETS, name, stage.namespace)
    await until(lambda: is_evicted_by_the_service(stage, placed_pod), within_s=PATIENCE_S)


async def told_of(stage: Stage, pod: Pod) -> list[str]:
    """Return what Events say about the eviction of *pod*, each once however often it is said."""
    found = json.loads(await stage.kube.get_raw(EVENTS.path(stage.namespace)))["items"]
    about = [one for one in found if one["involvedObject"]["uid"] == pod.metadata.uid]
    return [one["message"] for one in about if one["reason"] == EvictionReason.EVICTING_FOR_UPDATE]


BUDGETS: Final = ("first", "second")


async def make_guest(stage: Stage, kube_node: str) -> Pod:
    """Make a Pod under two disruption budgets, which the API server evicts under no circumstances."""
    for name in BUDGETS:
        budget = {
            "apiVersion": DISRUPTION_BUDGETS.api_version,
            "kind": DISRUPTION_BUDGETS.kind,
            "metadata": {"name": name},
            "spec": {"minAvailable": 0, "selector": {"matchLabels": {"test.example/guest": "yes"}}},
        }
        await stage.kube.create(DISRUPTION_BUDGETS, budget, stage.namespace)
    spec = {
        "nodeName": kube_node,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "localhost/sunk-pause:1"}],
    }
    meta = {"name": "guest", "labels": {"test.example/guest": "yes"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    placed_pod = await stage.kube.create(PODS, body, stage.namespace)

    async def runs() -> bool:  # What does not run yet is evicted whatever budgets say.
        return (await stage.kube.get(PODS, "guest", stage.namespace)).is_ready

    await until(runs, within_s=PATIENCE_S)
    return placed_pod


def said(found: NodeSet, kind: str) -> str:
    """Return the message of a condition."""
    one = condition(found.status.conditions, kind)
    return one.message if one is not None else ""


def is_the_same(pod: Pod, before: Pod) -> bool:
    return pod.metadata.uid == before.metadata.uid


async def is_evicted_by_the_service(stage: Stage, placed_pod: Pod) -> bool:
    found = await stage.kube.find(PODS, placed_pod.metadata.name, stage.namespace)
    return found is None or found.is_terminating


async def test_an_update_taken_back_half_way_releases_who_was_to_go(stage: Stage) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.uid for pod in await stage.pods()}
    stage.slurm.jobs |= {pod.metadata.name for pod in await stage.pods()}
    await stage.change(NEW_TEMPLATE)
    await until(lambda: len(stage.condemned()) == 1, within_s=PATIENCE_S)
    await stage.change({"template": {"metadata": None}})
    await stage.is_whole(3)

    assert {pod.metadata.uid for pod in await stage.pods()} == before
    await until(lambda: not stage.condemned(), within_s=PATIENCE_S)


async def test_a_deleted_nodeset_goes_when_its_last_job_has_ended(stage: Stage) -> None:
    await stage.is_whole(3)
    names = sorted(pod.metadata.name for pod in await stage.pods())
    stage.slurm.jobs.add(names[0])
    await stage.kube.delete(NODESETS, "gpu", stage.namespace)
    await stage.until_pods(lambda pods: [pod.metadata.name for pod in pods] == names[:1])
    found = await stage.nodeset()
    stage.slurm.jobs.clear()
    await until(lambda: is_empty(stage.kube, stage.namespace), within_s=PATIENCE_S)

    assert found.metadata.deletion_timestamp is not None
    assert stage.slurm.lost == []


async def test_pods_outlive_a_nodeset_that_is_deleted_without_them_and_the_next_one_adopts_them(
    stage: Stage,
) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.uid for pod in await stage.pods()}
    await stage.kube.patch(NODESETS, "gpu", {"metadata": {"finalizers": ["orphan"]}}, stage.namespace)
    await stage.kube.delete(NODESETS, "gpu", stage.namespace)

    async def is_gone() -> bool:
        return await stage.kube.find(NODESETS, "gpu", stage.namespace) is None

    await until(is_gone, within_s=PATIENCE_S)
    pods = await stage.pods()
    assert [pod.is_terminating or bool(pod.metadata.owner_references) for pod in pods] == [False] * 3
    await create(stage.kube, stage.namespace)
    await stage.is_whole(3)
    uid = (await stage.nodeset()).metadata.uid
    assert {pod.metadata.uid for pod in await stage.pods()} == before
    for resource in (PODS, NODESLICES, CONTROLLER_REVISIONS, DISRUPTION_BUDGETS):
        assert await owners_of(stage, resource) == {uid}
    (revision,) = await stage.kube.list_all(CONTROLLER_REVISIONS, stage.namespace)
    assert revision.data["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == HARD_TO_SPELL
    assert [one.metadata.name for one in await stage.kube.list_all(NODESLICES, stage.namespace)] == ["gpu-0"]
    assert wk.FINALIZER_NODESET in (await stage.nodeset()).metadata.finalizers


async def test_the_pods_of_a_nodeset_that_has_adopted_them_outlive_its_deletion_until_their_jobs_end(
    stage: Stage,
) -> None:
    await stage.is_whole(3)
    pods = await stage.pods()
    names, uids = ({pod.metadata.name for pod in pods}, {pod.metadata.uid for pod in pods})
    await stage.kube.patch(NODESETS, "gpu", {"metadata": {"finalizers": ["orphan"]}}, stage.namespace)
    await stage.kube.delete(NODESETS, "gpu", stage.namespace)
    await until(lambda: is_absent(stage, "gpu"), within_s=PATIENCE_S)
    stage.slurm.jobs |= names
    await create(stage.kube, stage.namespace)
    await stage.is_whole(3)
    await stage.kube.delete(NODESETS, "gpu", stage.namespace)
    await until(lambda: stage.condemned() == names, within_s=PATIENCE_S)

    assert {pod.metadata.uid for pod in await stage.pods()} == uids
    stage.slurm.jobs.clear()
    await until(lambda: is_empty(stage.kube, stage.namespace), within_s=PATIENCE_S)
    assert stage.slurm.lost == []


async def is_absent(stage: Stage, name: str) -> bool:
    return await stage.kube.find(NODESETS, name, stage.namespace) is None


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
HAS_OURS: Final = (
    f"has(one.metadata.finalizers) && one.metadata.finalizers.exists(name, name == '{wk.FINALIZER_NODESET}')"
)
NO_FINALIZER: Final = f"[object, oldObject].map(one, {HAS_OURS}) != [true, false]"
"""It is not put on; it may stay, and be taken off."""


@asynccontextmanager
async def finalizers_refused(stage: Stage) -> AsyncGenerator[None]:
    """Have the API server refuse, while the context lasts, that our finalizer is put on a NodeSet."""
    name = stage.namespace
    selector = {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}
    rule = {"apiGroups": [NODESETS.group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]}
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"namespaceSelector": selector, "resourceRules": [rule]},
            "validations": [{"expression": NO_FINALIZER, "message": "no finalizers here"}],
        },
    }
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    probe = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": "probe"},
        "spec": {"cluster": "nobody", "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
    }

    async def is_refused() -> bool:
        for finalizers in ([wk.FINALIZER_NODESET], None):
            try:
                await stage.kube.patch(
                    NODESETS, "probe", {"metadata": {"finalizers": finalizers}}, stage.namespace
                )
            except KubeRejectedError:
                return True
        return False

    await stage.kube.create(NODESETS, probe, stage.namespace)
    await stage.kube.create(POLICIES, policy)
    await stage.kube.create(BINDINGS, binding)
    try:
        await until(is_refused, within_s=PATIENCE_S)
        yield
    finally:
        await stage.kube.delete(BINDINGS, name)
        await stage.kube.delete(POLICIES, name)
        await stage.kube.delete(NODESETS, "probe", stage.namespace)


async def test_a_finalizer_that_is_refused_is_told_and_asked_for_until_it_is_not(stage: Stage) -> None:
    await stage.is_whole(3)
    before = {pod.metadata.uid for pod in await stage.pods()}
    await stage.kube.patch(NODESETS, "gpu", {"metadata": {"finalizers": ["orphan"]}}, stage.namespace)
    await stage.kube.delete(NODESETS, "gpu", stage.namespace)
    await until(lambda: is_absent(stage, "gpu"), within_s=PATIENCE_S)
    async with finalizers_refused(stage):
        await create(stage.kube, stage.namespace)
        await stage.until(lambda found: "no finalizers here" in said(found, "Accepted"))
        assert not any(pod.metadata.owner_references for pod in await stage.pods())
    await stage.is_whole(3)
    assert {pod.metadata.uid for pod in await stage.pods()} == before
    assert wk.FINALIZER_NODESET in (await stage.nodeset()).metadata.finalizers


async def owners_of(stage: Stage, resource: Resource[Any]) -> set[str]:
    found: list[KubeObject] = await stage.kube.list_all(resource, stage.namespace, labels=wk.LABEL_NODESET)
    return {owner.uid for one in found for owner in one.metadata.owner_references}


async def test_a_deleted_namespace_takes_its_nodeset_with_it_and_slurm_is_told(stage: Stage) -> None:
    await stage.is_whole(3)
    names = {pod.metadata.name for pod in await stage.pods()}
    stage.slurm.jobs |= names
    await stage.kube.delete(NAMESPACES, stage.namespace)

    async def is_gone() -> bool:
        return await stage.kube.find(NAMESPACES, stage.namespace) is None

    await until(is_gone, within_s=PATIENCE_S)
    await until(lambda: set(stage.slurm.lost) == names, within_s=PATIENCE_S)
    await until(lambda: not stage.slurm.pods.values() and not stage.slurm.members(), within_s=PATIENCE_S)


async def test_of_two_sets_over_the_same_nodes_the_older_has_them_and_the_other_says_so(stage: Stage) -> None:
    await stage.is_whole(3)
    await create(stage.kube, stage.namespace, "later", replicas=2)

    async def says(*words: str) -> bool:
        found = await stage.kube.get(NODESETS, "later", stage.namespace)
        why = condition(found.status.conditions, "Scheduled")
        return why is not None and why.status == "False" and all(word in why.message for word in words)

    await until(lambda: says(f"3 Nodes: belongs to NodeSet {stage.namespace}/gpu"), within_s=PATIENCE_S)
    await stage.change({"replicas": 2})  # The Node that the older one lets go is the younger one's.
    await until(lambda: says("1 of 2 wanted Nodes are feasible", "2 Nodes"), within_s=PATIENCE_S)
    await stage.until_pods(lambda pods: sum("later" in pod.metadata.name for pod in pods) == 1)


async def test_a_set_that_fits_nowhere_says_why_in_its_status_and_in_an_event(stage: Stage) -> None:
    await create(stage.kube, stage.namespace, "huge", cpu="9999")

    async def is_said() -> bool:
        events = await stage.kube.get_raw(EVENTS.path(stage.namespace))
        return b"0 of 0 wanted Nodes are feasible; 3 Nodes: not enough cpu" in events

    await until(is_said, within_s=PATIENCE_S)


async def test_a_disruption_budget_of_somebody_else_is_left_alone_and_said(stage: Stage) -> None:
    await stage.is_whole(3)
    labels = {"test.example/mine": "yes"}
    mine = {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": {"name": "other-nodeset"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    before = await stage.kube.create(DISRUPTION_BUDGETS, mine, stage.namespace)
    await create(stage.kube, stage.namespace, "other", replicas=0)

    async def is_said() -> bool:
        found = await stage.kube.get(NODESETS, "other", stage.namespace)
        return "no disruption budget" in said(found, "Accepted")

    await until(is_said, within_s=PATIENCE_S)
    after = await stage.kube.get(DISRUPTION_BUDGETS, "other-nodeset", stage.namespace)
    assert (after.metadata.labels, after.metadata.owner_references) == ({}, ())
    assert after.metadata.uid == before.metadata.uid
    assert await stage.kube.find(DISRUPTION_BUDGETS, "gpu-nodeset", stage.namespace) is not None


async def test_nobody_evicts_a_running_job_but_a_cordoned_node_can_be_drained_afterwards(
    stage: Stage,
) -> None:
    await stage.is_whole(3)
    pod = (await stage.pods())[0]
    stage.slurm.jobs.add(pod.metadata.name)
    cordon = {"spec": {"unschedulable": True}}
    await until(lambda: is_forbidden(stage, pod), within_s=PATIENCE_S)
    await stage.kube.patch(NODES, pod.spec.node_name, cordon)
    try:
        await until(lambda: stage.slurm.is_draining(pod.metadata.name), within_s=PATIENCE_S)
        is_safe = await is_forbidden(stage, pod)
        stage.slurm.jobs.clear()
        await until(lambda: is_evicted(stage, pod), within_s=PATIENCE_S)
    finally:
        await stage.kube.patch(NODES, pod.spec.node_name, {"spec": {"unschedulable": None}})

    assert (is_safe, stage.slurm.lost) == (True, [])


async def test_nobody_evicts_a_job_that_is_suspended_on_a_node_which_slurm_calls_idle(stage: Stage) -> None:
    await stage.is_whole(3)
    pod = (await stage.pods())[0]
    await stage.slurm.run_job(7, pod.metadata.name)
    stage.slurm.jobs.clear()  # As Slurm does of a job that is suspended.

    async def is_drained() -> bool:
        shown = await stage.kube.get(PODS, pod.metadata.name, stage.namespace)
        found = condition(shown.status.conditions, wk.CONDITION_SLURM_DRAIN)
        return found is not None and found.reason == "Drained"

    await stage.kube.patch(NODES, pod.spec.node_name, {"spec": {"unschedulable": True}})
    try:
        await until(is_drained, within_s=PATIENCE_S)
        is_safe = await is_forbidden(stage, pod)
        await stage.slurm.end_job(7)
        await until(lambda: is_evicted(stage, pod), within_s=PATIENCE_S)
    finally:
        await stage.kube.patch(NODES, pod.spec.node_name, {"spec": {"unschedulable": None}})

    assert is_safe


async def is_forbidden(stage: Stage, pod: Pod) -> bool:
    """Whether the budget forbids the eviction of *pod*; the test fails where it goes."""
    with pytest.raises(KubeBusyError):
        await stage.kube.evict(pod)
    return True


async def is_evicted(stage: Stage, pod: Pod) -> bool:
    try:
        await stage.kube.evict(pod)
    except KubeBusyError:
        return False
    return True
