"""Stories of the whole service: its own process, on a real API server and a real nats-server.

The tests play the syncer's part: they write what Slurm says to the bus.
"""

import itertools
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import httpx
import pytest
from msgspec import field
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.requests import ConfirmNode, ExplainKubeNode, Explanation, NodeConfirmed, Refused
from sunk_events.subjects import LEADER_KEY, STATISTICS_KEY
from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient, connect
from sunk_kube.crds import crds
from sunk_kube.errors import KubeNotFoundError
from sunk_kube.objects import Condition, KubeObject, Node, condition
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    NODESETS,
    NODESLICES,
    PODS,
    Resource,
)
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.locks.annotations import read
from sunk_nodeset_controller.locks.daemonsets import DAEMONSETS
from sunk_nodeset_controller.locks.model import OPEN, LockTaint
from sunk_nodeset_controller.metadata import MetadataPatch, patch
from sunk_nodeset_controller.nodesets.template import pinned_node
from sunk_nodeset_controller.nodesets.topology import blocks_of
from sunk_nodeset_controller.testing import Service
from sunk_runtime.changes import Changes
from sunk_runtime.errors import ConflictError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings
from sunk_runtime.jetstream import connect as connect_bus
from sunk_runtime.leases import Leadership
from sunk_runtime.requests import answering, ask
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CLUSTER = "lab"
ROLE = "test.example/nodeset"
MODEL = "gpu.nvidia.com/model"
PATIENCE_S = WITHIN_S
OWNED: tuple[Resource[Any], ...] = (
    PODS, NODESETS, NODESLICES, DISRUPTION_BUDGETS, CONFIG_MAPS, CONTROLLER_REVISIONS,
)  # fmt: skip
"""What the service makes in a namespace."""
FLAPPED: tuple[Resource[Any], ...] = (PODS, NODESETS)


class RawPod(KubeObject, frozen=True):
    """A Pod with all that its spec says."""

    spec: dict[str, Any] = field(default_factory=dict[str, Any])


RAW_PODS: Final = Resource(group="", kind="Pod", plural="pods", struct=RawPod)


class Stage(NamedTuple):
    """Everything that a story needs."""

    kube: KubeClient
    service: Service
    nats: NatsServer
    namespace: str
    node: str
    """The Node that is the NodeSet's, and what its Slurm node is called."""
    name: str
    pods: StateView[KubePodState]
    slurm: StateWriter[SlurmNodeState]
    bus: Bus

    async def pod(self) -> Pod | None:
        return await self.kube.find(PODS, self.name, self.namespace)

    async def kube_node(self) -> Node:
        return await self.kube.get(NODES, self.node)

    async def says(self, reason: str | None, *, is_busy: bool = False, since: datetime | None = None) -> None:
        """Say what Slurm says of the node: that it is drained for *reason*, or not at all."""
        state = SlurmNodeState(
            changed=datetime.now(UTC),
            node=self.name,
            state="IDLE",
            is_busy=is_busy,
            is_drain=reason is not None,
            reason=reason or "",
            reason_changed=since,
        )
        await self.slurm_says(state)

    async def slurm_says(self, state: SlurmNodeState) -> None:
        await self.slurm.view.complete()
        await self.slurm.record(self.name, state, revision=self.slurm.view.revision(self.name))

    async def pod_shows(self, kind: str, status: str) -> None:
        async def holds() -> bool:
            pod = await self.pod()
            return pod is not None and _is(condition(pod.status.conditions, kind), status)

        await until(holds, within_s=PATIENCE_S)

    async def node_shows(self, kind: str, status: str) -> None:
        async def holds() -> bool:
            return _is(condition((await self.kube_node()).status.conditions, kind), status)

        await until(holds, within_s=PATIENCE_S)

    async def told(self, holds: Callable[[KubePodState], bool]) -> KubePodState:
        """Return what the bus is told of the Pod as soon as it *holds*."""

        def is_told() -> bool:
            state = self.pods.get(self.name)
            return state is not None and holds(state)

        await until(is_told, within_s=PATIENCE_S)
        state = self.pods.get(self.name)
        assert state is not None
        return state


def _is(found: Condition | None, status: str) -> bool:
    return found is not None and found.status == status


@pytest.fixture(scope="module")
def kubeconfig(kube_lab: KubeLab) -> Path:
    return Path(kube_lab.kubeconfig)


@pytest.fixture
def nats(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncGenerator[KubeClient]:
    async with connect("test", kubeconfig=kubeconfig) as client:
        for crd in crds():
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
        yield client


@pytest.fixture
async def stage(
    kube: KubeClient, nats: NatsServer, kubeconfig: Path, tmp_path: Path
) -> AsyncGenerator[Stage]:
    """One Node, one NodeSet for it, the service; all gone afterwards."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-nodeset-"}}
    namespace = (await kube.create(NAMESPACES, body)).metadata.name
    node = max(await kube.list_all(NODES), key=lambda node: node.metadata.name)
    *_, third, fourth = node.internal_ip.split(".")
    settings = {
        "CLUSTERS": CLUSTER,
        "KUBECONFIG": str(kubeconfig),
        "NATS_URL": nats.url,
        "HTTP_PORT": "0",
        "LEASE_NAMESPACE": "default",  # The service outlives the namespace.
        "LEASE_NAME": namespace,
        "SLURM_STALE_S": "3600",  # No statistics are played: a slow test is no silence.
        "SLURM_UNKNOWN_S": "7200",
        "REPLACE_AFTER_S": "0.1",
        "TOPOLOGY": "tree",
        "TOPOLOGY_LABELS": "kubernetes.io/os,kubernetes.io/hostname",
        "GRES": "cpu=core",
    }
    service = Service(settings, tmp_path / "service.log")
    service.start()
    try:
        await _label(kube, node, namespace)
        await _create_nodeset(kube, namespace)
        async with _bus(nats) as (bus, pods, slurm):
            name = f"gpu-{int(third):03}-{int(fourth):03}"
            yield Stage(kube, service, nats, namespace, node.metadata.name, name, pods, slurm, bus)
    finally:
        with anyio.move_on_after(PATIENCE_S, shield=True):
            await kube.patch(NODES, node.metadata.name, {"spec": {"unschedulable": None}})
            await _label(kube, node, None)
            await kube.delete(NAMESPACES, namespace)
            await until(lambda: _is_empty(kube, namespace), within_s=PATIENCE_S)
        service.end(signal.SIGTERM)
    assert not service.bugs()


async def _is_empty(kube: KubeClient, namespace: str) -> bool:
    """The next test has the same names: nothing of this one may be left."""
    return not await kube.list_all(NODESETS, namespace) and not await kube.list_all(PODS, namespace)


async def _label(kube: KubeClient, node: Node, value: str | None) -> None:
    await kube.patch(NODES, node.metadata.name, {"metadata": {"labels": {ROLE: value}}})


async def _create_nodeset(kube: KubeClient, namespace: str) -> None:
    container = {"name": "slurmd", "image": "localhost/sunk-pause:1"}
    requirement = {"key": ROLE, "operator": "In", "values": [namespace]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    }
    body = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": "gpu"},
        "spec": {"cluster": CLUSTER, "template": {"spec": spec}},
    }
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await kube.create(NODESETS, body, namespace)
            except KubeNotFoundError:  # The definition is not served yet.
                await anyio.sleep(0.1)
            else:
                return


@asynccontextmanager
async def _bus(
    nats: NatsServer,
) -> AsyncGenerator[tuple[Bus, StateView[KubePodState], StateWriter[SlurmNodeState]]]:
    settings = BusSettings(url=nats.url)
    async with connect_bus(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        pods, slurm = StateView(bus, CLUSTER, KubePodState), StateView(bus, CLUSTER, SlurmNodeState)
        async with following(pods, slurm):
            yield bus, pods, StateWriter(bus, slurm, fence=None)


@asynccontextmanager
async def _drained(stage: Stage) -> AsyncGenerator[None]:
    """Play the syncer of a node that is drained and idle."""

    async def answer(question: ConfirmNode) -> NodeConfirmed:
        return NodeConfirmed(node=question.node, is_known=True, is_drained_and_idle=True)

    await stage.says("k8s: pod pending deletion")
    async with answering(stage.bus, CLUSTER, ConfirmNode, answer):
        yield


async def test_a_nodeset_runs_one_ready_pod_on_its_node_and_says_so(stage: Stage) -> None:
    state = await stage.told(lambda state: state.is_ready)
    pod = await stage.pod()

    assert pod is not None
    assert (state.kube_node, state.uid, state.phase) == (stage.node, pod.metadata.uid, "running")
    await until(lambda: _is_counted(stage), within_s=PATIENCE_S)
    await stage.node_shows(wk.CONDITION_SLURM_DRAIN, "Unknown")
    labels = (await stage.kube_node()).metadata.labels
    assert labels[wk.LABEL_POD] == stage.name
    assert labels[wk.LABEL_NAMESPACE] == stage.namespace


async def _is_counted(stage: Stage) -> bool:
    status = (await stage.kube.get(NODESETS, "gpu", stage.namespace)).status
    return status.number_ready == status.desired_number_scheduled == status.number_feasible == 1


async def test_that_somebody_sees_kubernetes_is_said_again_and_again(stage: Stage) -> None:
    view = StateView(stage.bus, CLUSTER, KubeWatchState)

    def is_said_after(moment: datetime) -> bool:
        return (said := view.get(LEADER_KEY)) is not None and said.seen > moment

    async with following(view):
        await until(lambda: view.get(LEADER_KEY) is not None, within_s=PATIENCE_S)
        await until(partial(is_said_after, datetime.now(UTC)), within_s=PATIENCE_S)


async def test_a_pod_deleted_by_hand_comes_back_under_its_name(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    await stage.kube.delete(PODS, stage.name, stage.namespace)

    after = await stage.told(lambda state: state.is_ready and state.uid != before.uid)

    assert after.pod == before.pod


async def test_a_pod_bears_since_when_its_node_was_out_of_service_as_it_was_made(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    await stage.says("bad dimm", since=datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC))
    await stage.pod_shows(wk.CONDITION_SLURM_DRAIN, "True")  # So it has been heard.
    await stage.kube.delete(PODS, stage.name, stage.namespace)
    await stage.told(lambda state: state.is_ready and state.uid != before.uid)

    pod = await stage.pod()

    assert pod is not None
    assert pod.metadata.annotations[wk.ANNOTATION_REASON_CHANGED] == "2026-05-04T03:02:01Z"


async def test_a_pod_is_told_what_the_daemonsets_leave_of_its_node_where_its_nodeset_asks(
    stage: Stage,
) -> None:
    async def left(uid: str) -> dict[str, int]:
        await stage.kube.delete(PODS, stage.name, stage.namespace)
        await stage.told(lambda state: state.is_ready and state.uid != uid)
        spec = (await stage.kube.get(RAW_PODS, stage.name, stage.namespace)).spec
        env = spec["containers"][0]["env"]
        return {one["name"]: int(one["value"]) for one in env if one["name"].startswith("SUNK_LEFT_")}

    async def made_after(body: dict[str, Any]) -> dict[str, int]:
        before = await stage.told(lambda state: state.is_ready)
        if body["kind"] == "NodeSet":
            await stage.kube.patch(NODESETS, "gpu", body, stage.namespace)
        else:
            await stage.kube.create(DAEMONSETS, body, stage.namespace)
        return await left(before.uid)

    labels = {"app": "agent"}
    agent = {
        "nodeSelector": {ROLE: stage.namespace},
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "agent",
                "image": "localhost/sunk-pause:1",
                "resources": {"requests": {"cpu": "1", "memory": "100Mi"}},
            }
        ],
    }
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": agent},
    }

    alone = await made_after({"kind": "NodeSet", "spec": {"leaveRoomFor": "DaemonSets"}})
    beside = await made_after(
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": spec}
    )

    assert beside == {
        "SUNK_LEFT_CPUS": alone["SUNK_LEFT_CPUS"] - 1,
        "SUNK_LEFT_MIB": alone["SUNK_LEFT_MIB"] - 100,
    }


async def test_a_pods_slurmd_learns_the_gpus_of_its_node_and_is_not_made_before_they_are_known(
    stage: Stage,
) -> None:
    async def labelled(value: str | None) -> None:
        await stage.kube.patch(NODES, stage.node, {"metadata": {"labels": {MODEL: value}}})

    async def announced(count: str | None) -> None:
        """Play the device plugin."""
        status = {"status": {kind: {"nvidia.com/gpu": count} for kind in ("capacity", "allocatable")}}
        await stage.kube.patch_status(NODES, stage.node, status)

    async def awaited() -> list[str]:
        found = await stage.kube.get(NODESETS, "gpu", stage.namespace)
        return [one.kube_node for one in found.status.gpus_awaited]

    async def is_waited_for() -> bool:
        found = await stage.kube.get(NODESETS, "gpu", stage.namespace)
        scheduled = condition(found.status.conditions, "Scheduled")
        return (
            scheduled is not None
            and scheduled.reason == "GPUsNotAnnounced"
            and "nvidia.com/gpu yet, though label gpu.nvidia.com/model is H100_NVLINK_80GB"
            in scheduled.message
        )

    async def made_after(uid: str) -> tuple[str, str | None, str | None]:
        """Return the uid, what slurmd learns, and the label of the Pod that comes after *uid*."""
        state = await stage.told(lambda state: state.is_ready and state.uid != uid)
        pod = await stage.kube.get(RAW_PODS, stage.name, stage.namespace)
        env = {one["name"]: one.get("value") for one in pod.spec["containers"][0]["env"]}
        return state.uid, env.get("SUNK_NODE_GRES"), pod.metadata.labels.get(wk.LABEL_GRES_GPU)

    async def is_nothing_awaited() -> bool:
        return not await awaited()

    before = await stage.told(lambda state: state.is_ready)
    spec = {"gpus": "FromNode", "gpuTypes": {"H100_NVLINK_80GB": "h100"}}
    await stage.kube.patch(NODESETS, "gpu", {"spec": spec}, stage.namespace)
    try:
        await labelled("H100_NVLINK_80GB")
        await stage.kube.delete(PODS, stage.name, stage.namespace)
        await until(is_waited_for, within_s=PATIENCE_S)
        assert await stage.pod() is None
        assert await awaited() == [stage.node]
        (entry,) = [
            one for found in await stage.kube.list_all(NODESLICES, stage.namespace) for one in found.nodes
        ]
        assert not entry.released  # Else its record in Slurm goes, and an administrator's drain with it.

        await announced("8")
        uid, *learnt = await made_after(before.uid)
        assert learnt == ["gpu:h100:8", "h100-8"]
        await until(is_nothing_awaited, within_s=PATIENCE_S)

        await announced(None)
        stage.service.end(signal.SIGTERM)
        stage.service.change(GPU_WAIT_S="2")
        stage.service.start()
        await stage.kube.delete(PODS, stage.name, stage.namespace)
        _, *learnt = await made_after(uid)
        assert learnt == [None, None]
    finally:
        await labelled(None)
        await announced(None)


async def test_a_node_whose_gpus_have_the_longest_of_names_gets_its_pod(stage: Stage) -> None:
    kind = "x" * 63

    async def labelled(value: str | None) -> None:
        await stage.kube.patch(NODES, stage.node, {"metadata": {"labels": {MODEL: value}}})

    async def announced(count: str | None) -> None:
        status = {"status": {which: {"nvidia.com/gpu": count} for which in ("capacity", "allocatable")}}
        await stage.kube.patch_status(NODES, stage.node, status)

    before = await stage.told(lambda state: state.is_ready)
    try:
        await labelled(kind)
        await announced("8")
        await stage.kube.patch(NODESETS, "gpu", {"spec": {"gpus": "FromNode"}}, stage.namespace)
        await stage.kube.delete(PODS, stage.name, stage.namespace)
        await stage.told(lambda state: state.is_ready and state.uid != before.uid)
        pod = await stage.kube.get(RAW_PODS, stage.name, stage.namespace)
        env = {one["name"]: one.get("value") for one in pod.spec["containers"][0]["env"]}

        assert env["SUNK_NODE_GRES"] == f"gpu:{kind}:8"
        assert pod.metadata.labels[wk.LABEL_GRES_GPU] == f"{kind[:61]}-8"
    finally:
        await labelled(None)
        await announced(None)


async def test_a_pod_that_has_failed_is_replaced_and_a_restart_forgets_no_failure(stage: Stage) -> None:
    async def failures() -> list[int]:
        slices = await stage.kube.list_all(NODESLICES, stage.namespace)
        return [entry.failures for one in slices for entry in one.nodes]

    async def is_replaced() -> bool:
        pod = await stage.pod()
        if pod is not None and pod.metadata.uid == before.uid and pod.status.phase != "Failed":
            # Again, where the kubelet was just saying that it runs.
            failed = {"metadata": {"uid": before.uid}, "status": {"phase": "Failed", "reason": "Test"}}
            with suppress(KubeNotFoundError, ConflictError):  # Another has its name by now.
                await stage.kube.patch_status(PODS, stage.name, failed, stage.namespace)
        state = stage.pods.get(stage.name)
        return state is not None and state.is_ready and state.uid != before.uid

    for often in (1, 2):
        before = await stage.told(lambda state: state.is_ready)
        await until(is_replaced, within_s=PATIENCE_S)
        assert await failures() == [often]
        stage.service.end(signal.SIGKILL)
        stage.service.start()


async def test_a_pod_whose_label_is_taken_off_is_not_gone_and_gets_it_back(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    phases: set[str] = set()

    async def watch() -> None:
        async for _ in stage.pods.changes():
            state = stage.pods.get(stage.name)
            phases.add(state.phase if state is not None else "forgotten")

    async def is_labelled() -> bool:
        pod = await stage.pod()
        return pod is not None and pod.metadata.labels.get(wk.LABEL_NODESET) == "gpu"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        for _ in range(3):
            labels = {wk.LABEL_NODESET: None, wk.LABEL_CLUSTER: None}
            await stage.kube.patch(PODS, stage.name, {"metadata": {"labels": labels}}, stage.namespace)
            await until(is_labelled, within_s=PATIENCE_S)
        await stage.says("bad dimm")
        await stage.node_shows(wk.CONDITION_SLURM_CORDON, "True")
        tasks.cancel_scope.cancel()

    state = stage.pods.get(stage.name)
    assert state is not None
    assert (state.uid, phases) == (before.uid, {"running"})


async def test_a_label_alone_makes_no_nodeset_pod(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    labels = {wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: CLUSTER}
    impostor = await _create_pod(stage, "impostor", "default", stage.node, labels)
    try:
        await stage.says("bad dimm")
        await stage.node_shows(wk.CONDITION_SLURM_CORDON, "True")
        await stage.kube.delete(PODS, stage.name, stage.namespace)
        await stage.told(lambda state: state.is_ready and state.uid != before.uid)
        labels = (await stage.kube_node()).metadata.labels
    finally:
        await stage.kube.delete(PODS, "impostor", "default", uid=impostor.metadata.uid, grace_period_s=0)
    assert (labels[wk.LABEL_NAMESPACE], labels[wk.LABEL_POD]) == (stage.namespace, stage.name)


async def test_a_name_that_somebody_elses_pod_has_is_left_to_it_and_said(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    stage.service.end(signal.SIGTERM)
    await stage.kube.delete(PODS, stage.name, stage.namespace, grace_period_s=0)
    await until(lambda: _is_gone(stage), within_s=PATIENCE_S)
    await _create_pod(stage, stage.name, stage.namespace, stage.node, {})
    stage.service.start()

    async def is_ready_elsewhere() -> bool:
        pods = await stage.kube.list_all(PODS, stage.namespace, labels=wk.LABEL_NODESET)
        return [pod.is_ready for pod in pods if pod.metadata.name != stage.name] == [True]

    async def is_said() -> bool:
        conditions = (await stage.kube.get(NODESETS, "gpu", stage.namespace)).status.conditions
        found = condition(conditions, "Scheduled")
        return found is not None and f"other Pods have these names already: {stage.name}" in found.message

    await until(is_ready_elsewhere, within_s=PATIENCE_S)
    await until(is_said, within_s=PATIENCE_S)


async def _is_gone(stage: Stage) -> bool:
    return await stage.pod() is None


async def _create_pod(stage: Stage, name: str, namespace: str, kube_node: str, labels: dict[str, str]) -> Pod:
    """Make a Pod that is no NodeSet's."""
    spec = {
        "nodeName": kube_node,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "localhost/sunk-pause:1"}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    return await stage.kube.create(PODS, body, namespace)


async def test_a_cordon_reaches_the_bus_with_its_reason_and_goes_with_it(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    cordon = {
        "metadata": {"annotations": {wk.ANNOTATION_CORDON_REASON: "bad fan"}},
        "spec": {"unschedulable": True},
    }
    await stage.kube.patch(NODES, stage.node, cordon)
    await stage.told(lambda state: state.is_cordoned and state.cordon_reason == "bad fan")
    cordon = {
        "metadata": {"annotations": {wk.ANNOTATION_CORDON_REASON: None}},
        "spec": {"unschedulable": None},
    }
    await stage.kube.patch(NODES, stage.node, cordon)

    await stage.told(lambda state: not state.is_cordoned and not state.cordon_reason)


async def test_a_drain_in_slurm_shows_on_pod_and_node_and_goes_again(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    await stage.says("bad dimm")
    await stage.pod_shows(wk.CONDITION_SLURM_DRAIN, "True")
    await stage.node_shows(wk.CONDITION_SLURM_CORDON, "True")
    pod, node = await stage.pod(), await stage.kube_node()
    await stage.says(None)
    await stage.node_shows(wk.CONDITION_SLURM_CORDON, "False")

    assert pod is not None
    assert pod.metadata.annotations[wk.ANNOTATION_DRAIN] == "bad dimm"
    assert pod.metadata.labels[wk.LABEL_DRAIN] == "true"
    assert node.metadata.annotations[wk.ANNOTATION_DRAIN] == "bad dimm"
    after = await stage.kube_node()
    assert wk.ANNOTATION_DRAIN not in after.metadata.annotations


async def test_a_drain_from_kubernetes_is_no_cordon_of_slurm(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    await stage.says("k8s: pod not ready")

    await stage.node_shows(wk.CONDITION_SLURM_DRAIN, "True")
    await stage.node_shows(wk.CONDITION_SLURM_CORDON, "False")


async def test_a_killed_service_finds_again_what_happened_meanwhile(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    stage.service.end(signal.SIGKILL)
    await stage.kube.delete(PODS, stage.name, stage.namespace, grace_period_s=0)
    await stage.says("bad dimm")
    stage.service.start()

    await stage.told(lambda state: state.is_ready and state.uid != before.uid)
    await stage.node_shows(wk.CONDITION_SLURM_CORDON, "True")


async def test_a_pod_that_went_while_the_service_was_dead_is_told_of_before_the_next_one_runs(
    stage: Stage,
) -> None:
    before = await stage.told(lambda state: state.is_ready)
    told: list[bool] = []

    async def watch() -> None:
        async for _ in stage.pods.changes():
            state = stage.pods.get(stage.name)
            assert state is not None
            is_named = state.gone_uid == before.uid or (state.phase, state.uid) == ("gone", before.uid)
            told.append(is_named and not state.is_ready)

    stage.service.end(signal.SIGKILL)
    await stage.kube.delete(PODS, stage.name, stage.namespace, grace_period_s=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        stage.service.start()
        await stage.told(lambda state: state.is_ready and state.uid != before.uid)
        tasks.cancel_scope.cancel()

    after = stage.pods.get(stage.name)
    assert any(told)
    assert after is not None
    assert after.gone_uid == ""


async def test_a_restart_writes_nothing_where_nothing_has_changed(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    await stage.says("bad dimm")
    await stage.node_shows(wk.CONDITION_SLURM_CORDON, "True")
    before = await _settled(stage)
    stage.service.end(signal.SIGKILL)
    stage.service.start()
    await until(lambda: _is_answered(stage), within_s=PATIENCE_S)

    assert await _settled(stage) == before
    assert {key.partition(" ")[0] for key in before} >= {
        "pods", "nodes", "nodesets", "nodeslices", "poddisruptionbudgets", "configmaps",
        "controllerrevisions",
    }  # fmt: skip


async def _settled(stage: Stage) -> dict[str, str]:
    """Return the versions of all that the service writes, as soon as they stay for a while."""
    found: list[dict[str, str]] = [{}]

    for part in ("topology", "gres"):  # Written again only after a while.
        await until(lambda part=part: _is_generated(stage, part, stage.name), within_s=PATIENCE_S)

    async def is_still() -> bool:
        found.append(await _versions(stage))
        await anyio.sleep(1.5)
        return found[-1] == found[-2]

    await until(is_still, within_s=PATIENCE_S)
    return found[-1]


async def _versions(stage: Stage) -> dict[str, str]:
    node = await stage.kube_node()
    versions = {f"nodes {node.metadata.name}": ""}  # A kubelet writes there too: what is ours is looked at.
    ours = (
        node.metadata.labels,
        node.metadata.annotations,
        [one for one in node.status.conditions if "Slurm" in one.type],
    )
    versions[f"nodes {node.metadata.name}"] = str(ours)
    for resource in OWNED:
        found: list[KubeObject] = await stage.kube.list_all(resource, stage.namespace)
        versions |= {f"{resource.plural} {one.key}": one.metadata.resource_version for one in found}
    return versions


async def _is_answered(stage: Stage) -> bool:
    """Whether somebody leads, who answers only when all is read."""
    try:
        await ask(stage.bus, CLUSTER, ExplainKubeNode(node=stage.name), timeout_s=1)
    except TransientError:
        return False
    return True


async def test_a_slurm_node_that_flaps_is_written_once_a_second_and_a_file_once_a_change(
    stage: Stage,
) -> None:
    await stage.told(lambda state: state.is_ready)
    before = await _settled(stage)
    watched = {
        resource.plural: Reflector(stage.kube, resource, namespace=stage.namespace) for resource in FLAPPED
    }
    counts: Counter[str] = Counter()
    flapped_s = 0.0

    async def count(plural: str, changes: Changes) -> None:
        async for _ in changes:
            counts[plural] += 1

    async with anyio.create_task_group() as tasks:
        for plural, view in watched.items():
            tasks.start_soon(view.run)
            await view.complete()
            tasks.start_soon(count, plural, view.changes())
        began = anyio.current_time()
        for number in range(60):
            await stage.says("bad dimm" if number % 2 else None, is_busy=bool(number % 3))
            await anyio.sleep(0.05)
        await stage.says("last")
        await stage.pod_shows(wk.CONDITION_SLURM_DRAIN, "True")
        await _settled(stage)
        flapped_s = anyio.current_time() - began
        tasks.cancel_scope.cancel()

    assert 2 <= counts["pods"] <= flapped_s + 3
    assert counts["nodesets"] <= flapped_s + 3
    after = await _versions(stage)
    files = {key: version for key, version in before.items() if key.startswith(("configmaps", "nodeslices"))}
    assert files.items() <= after.items()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["told to stop", "killed"])
async def test_a_standby_takes_over_from_a_leader(stage: Stage, number: signal.Signals) -> None:
    before = await stage.told(lambda state: state.is_ready)
    led = (await stage.kube.get(LEASES, stage.namespace, "default")).spec
    standby = stage.service.another()
    try:
        stage.service.end(number)
        last = (await stage.kube.get(LEASES, stage.namespace, "default")).spec
        await stage.kube.delete(PODS, stage.name, stage.namespace)

        await stage.told(lambda state: state.is_ready and state.uid != before.uid)
        taken = (await stage.kube.get(LEASES, stage.namespace, "default")).spec
        assert taken.holder_identity not in {"", led.holder_identity}
        assert taken.lease_transitions is not None  # More than one: a leader that was slow took it again.
        assert taken.lease_transitions > (led.lease_transitions or 0)
        if number is signal.SIGKILL:  # Nobody leads before the lease of the one that was killed has ended.
            assert taken.acquire_time is not None
            assert last.renew_time is not None
            assert last.lease_duration_seconds is not None
            silent_s = (taken.acquire_time - last.renew_time).total_seconds()
            assert silent_s >= last.lease_duration_seconds
    finally:
        standby.end(signal.SIGTERM)
        stage.service.start()


async def test_topology_and_gres_are_generated_from_the_nodes_of_a_cluster(stage: Stage) -> None:
    tree = f"SwitchName=linux-{stage.node} Nodes={stage.name}\nSwitchName=linux Switches=linux-{stage.node}\n"
    await until(lambda: _is_generated(stage, "topology", tree), within_s=PATIENCE_S)
    gres = f"NodeName={stage.name} Name=core Count="
    await until(lambda: _is_generated(stage, "gres", gres), within_s=PATIENCE_S)


async def test_the_block_that_the_last_node_has_left_stays_in_topology_yaml_also_without_the_one_before(
    stage: Stage,
) -> None:
    label = "test.example/block"

    async def labelled(value: str | None) -> None:
        await stage.kube.patch(NODES, stage.node, {"metadata": {"labels": {label: value}}})

    async def blocks() -> set[str]:
        found = await stage.kube.find(CONFIG_MAPS, f"{CLUSTER}-topology", stage.namespace)
        return set() if found is None else blocks_of(found.data.get("topology.yaml", ""))

    async def has(block: str) -> bool:
        return block in await blocks()

    stage.service.end(signal.SIGTERM)
    stage.service.change(TOPOLOGY="both", TOPOLOGY_BLOCK_LABEL=label)
    stage.service.start()
    try:
        await labelled("d1")
        await until(lambda: has("d1"), within_s=PATIENCE_S)
        await labelled("d2")
        await until(lambda: has("d2"), within_s=PATIENCE_S)
        assert await blocks() == {"d1", "d2"}

        there = SlurmNodeState(changed=datetime.now(UTC), node=stage.name, state="IDLE")
        await stage.slurm_says(replace(there, topology="tree:all:none,block:d3"))
        await stage.kube.delete(CONFIG_MAPS, f"{CLUSTER}-topology", stage.namespace)
        await labelled("d4")
        await until(lambda: has("d4"), within_s=PATIENCE_S)
        assert await blocks() == {"d3", "d4"}

        stage.service.end(signal.SIGTERM)
        stage.service.change(TOPOLOGY="tree", TOPOLOGY_BLOCK_LABEL="")
        stage.service.start()
        await until(lambda: _is_generated(stage, "topology", f"SwitchName=linux-{stage.node}"), within_s=60)
        assert await blocks() == {"d3", "d4"}
    finally:
        await labelled(None)


async def _is_generated(stage: Stage, part: str, text: str) -> bool:
    found = await stage.kube.find(CONFIG_MAPS, f"{CLUSTER}-{part}", stage.namespace)
    return found is not None and text in found.data[f"{part}.conf"]


async def test_a_slurm_that_falls_silent_is_said_and_nothing_is_done(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    await stage.says("bad dimm")
    await stage.node_shows(wk.CONDITION_SLURM_CORDON, "True")
    stage.service.end(signal.SIGTERM)
    port = free_port()
    stage.service.change(SLURM_STALE_S="1", SLURM_UNKNOWN_S="3", HTTP_PORT=str(port))
    stage.service.start()

    await until(lambda: _slurm_is_known(stage, "NoNewsFromSlurm"), within_s=PATIENCE_S)
    await until(lambda: _is_measured(stage, port, "0.0"), within_s=PATIENCE_S)
    await stage.pod_shows(wk.CONDITION_SLURM_DRAIN, "Unknown")
    await stage.node_shows(wk.CONDITION_SLURM_CORDON, "Unknown")
    pod, node = await stage.pod(), await stage.kube_node()
    assert pod is not None
    assert pod.metadata.uid == before.uid
    assert wk.ANNOTATION_CONDEMNED not in pod.metadata.annotations
    assert node.metadata.annotations[wk.ANNOTATION_DRAIN] == "bad dimm"
    await _scale(stage, 0)
    pod = await stage.pod()
    assert pod is not None
    assert wk.ANNOTATION_CONDEMNED not in pod.metadata.annotations
    await _scale(stage, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_speak, stage)
        await until(lambda: _slurm_is_known(stage, "SlurmAnswers"), within_s=PATIENCE_S)
        await until(lambda: _is_measured(stage, port, "1.0"), within_s=PATIENCE_S)
        await stage.node_shows(wk.CONDITION_SLURM_CORDON, "True")
        tasks.cancel_scope.cancel()


async def _is_measured(stage: Stage, port: int, value: str) -> bool:
    """Whether the service's metrics say *value* of what is known of Slurm."""
    async with httpx.AsyncClient(trust_env=False, timeout=WITHIN_S) as http:
        text = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    return f'sunk_nodeset_slurm_known{{nodeset="{stage.namespace}/gpu"}} {value}' in text.splitlines()


async def _scale(stage: Stage, replicas: int) -> None:
    """Want so many Pods, and return when the controller has seen it."""
    await _change(stage, {"replicas": replicas})


async def _knows_nothing(question: ConfirmNode) -> NodeConfirmed:
    """Answer as a syncer whose Slurm has lost its nodes."""
    return NodeConfirmed(node=question.node, is_known=False, is_drained_and_idle=False)


async def _change(stage: Stage, spec: dict[str, Any]) -> None:
    """Change the NodeSet, and return when the controller has seen it."""
    wanted = await stage.kube.patch(NODESETS, "gpu", {"spec": spec}, stage.namespace)

    async def is_seen() -> bool:
        status = (await stage.kube.get(NODESETS, "gpu", stage.namespace)).status
        return status.observed_generation == wanted.metadata.generation

    await until(is_seen, within_s=PATIENCE_S)


async def _speak(stage: Stage) -> None:
    """Play a syncer whose Slurm answers."""
    statistics = StateView(stage.bus, CLUSTER, SlurmStatisticsState)
    async with following(statistics):
        await statistics.complete()
        writer = StateWriter(stage.bus, statistics, fence=None)
        for number in itertools.count():
            state = SlurmStatisticsState(changed=datetime.now(UTC), jobs_submitted=number)
            await writer.record(STATISTICS_KEY, state, revision=statistics.revision(STATISTICS_KEY))
            await anyio.sleep(0.2)


async def _slurm_is_known(stage: Stage, reason: str) -> bool:
    status = (await stage.kube.get(NODESETS, "gpu", stage.namespace)).status
    found = condition(status.conditions, "SlurmKnown")
    return found is not None and found.reason == reason


async def test_a_slurm_that_suddenly_knows_no_node_is_an_alarm_and_nothing_is_done(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    await stage.says("bad dimm")
    await stage.pod_shows(wk.CONDITION_SLURM_DRAIN, "True")
    await stage.slurm.forget(stage.name, revision=stage.slurm.view.revision(stage.name))

    await until(lambda: _slurm_is_known(stage, "NodesMissing"), within_s=PATIENCE_S)
    await until(lambda: _is_event(stage, "gpu"), within_s=PATIENCE_S)
    pod = await stage.pod()
    assert pod is not None
    async with answering(stage.bus, CLUSTER, ConfirmNode, _knows_nothing):
        await _scale(stage, 0)
        await _change(stage, {"template": {"metadata": {"annotations": {"test.example/version": "2"}}}})
        await _scale(stage, 1)
        after = await stage.pod()
    assert after is not None
    assert (after.metadata.uid, after.metadata.annotations) == (before.uid, pod.metadata.annotations)
    await stage.pod_shows(wk.CONDITION_SLURM_DRAIN, "True")
    await _change(stage, {"template": {"metadata": None}})
    await stage.says("bad dimm")
    await until(lambda: _slurm_is_known(stage, "SlurmAnswers"), within_s=PATIENCE_S)


async def test_a_clusters_name_passes_on_when_its_nodeset_goes(stage: Stage) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-nodeset-"}}
    other = (await stage.kube.create(NAMESPACES, body)).metadata.name
    await stage.told(lambda state: state.is_ready)

    async def is_generated() -> bool:
        return await stage.kube.find(CONFIG_MAPS, f"{CLUSTER}-topology", stage.namespace) is not None

    await until(is_generated, within_s=PATIENCE_S)
    await _label(stage.kube, await stage.kube_node(), other)
    await _create_nodeset(stage.kube, other)

    async def accepted(status: str) -> bool:
        found = (await stage.kube.get(NODESETS, "gpu", other)).status
        return _is(condition(found.conditions, "Accepted"), status)

    try:
        await until(lambda: accepted("False"), within_s=PATIENCE_S)
        async with _drained(stage):
            await stage.kube.delete(NODESETS, "gpu", stage.namespace)
            await until(lambda: accepted("True"), within_s=PATIENCE_S)
            await stage.told(lambda state: state.is_ready and state.namespace == other)
        assert await is_generated()  # slurmctld may still need it: nobody knows that it does not.
    finally:  # The oldest NodeSet has the cluster's name: the next test would not have it.
        await stage.kube.delete(NAMESPACES, other)
        await until(lambda: _is_empty(stage.kube, other), within_s=PATIENCE_S)


async def test_a_bus_that_is_away_does_not_stop_what_needs_only_kubernetes(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    stage.nats.kill()
    await stage.kube.delete(PODS, stage.name, stage.namespace)

    async def is_back() -> bool:
        pod = await stage.pod()
        return pod is not None and pod.metadata.uid != before.uid and pod.is_ready

    await until(is_back, within_s=PATIENCE_S)
    stage.nats.start()
    await stage.told(lambda state: state.is_ready and state.uid != before.uid)


async def test_a_node_that_no_longer_fits_after_its_pod_is_gone_is_forgotten(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    async with _drained(stage):
        await stage.kube.delete(NODESETS, "gpu", stage.namespace)

        await until(lambda: stage.pods.get(stage.name) is None, within_s=PATIENCE_S)

    async def is_bare() -> bool:
        node = await stage.kube_node()
        kinds = {found.type for found in node.status.conditions}
        return wk.LABEL_POD not in node.metadata.labels and wk.CONDITION_SLURM_CORDON not in kinds

    await until(is_bare, within_s=PATIENCE_S)


async def test_a_pod_that_goes_for_good_is_known_as_gone_until_slurm_has_no_job_there(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    await stage.says(None, is_busy=True)
    await stage.pod_shows(wk.CONDITION_SLURM_RUNNING, "True")
    await _label(stage.kube, await stage.kube_node(), None)
    await stage.kube.delete(PODS, stage.name, stage.namespace)
    await stage.told(lambda state: state.phase == "gone")
    stage.service.end(signal.SIGTERM)
    stage.service.start()
    await until(lambda: _is_infeasible(stage), within_s=PATIENCE_S)
    is_known = stage.pods.get(stage.name) is not None
    await stage.says(None)
    await until(lambda: stage.pods.get(stage.name) is None, within_s=PATIENCE_S)

    assert is_known


async def test_a_deleted_nodes_pod_is_to_go_and_a_node_that_comes_back_is_locked_again(stage: Stage) -> None:
    """Its jobs run on: nobody has told the kubelet."""
    ghost, name = f"{stage.namespace}-ghost", "gpu-250-250"  # A Node in the API server only.
    jobs, locks = StateView(stage.bus, CLUSTER, SlurmJobState), StateView(stage.bus, CLUSTER, LockState)

    def tells(*, is_condemned: bool) -> bool:
        found = stage.pods.get(name)
        return found is not None and found.phase != "gone" and found.is_condemned is is_condemned

    async def is_locked() -> bool:
        node = await stage.kube.find(NODES, ghost)
        lock = read(node, LockTaint()) if node is not None else OPEN
        return lock.value == "locked" and [holder.job for holder in lock.holders] == [7]

    async with following(jobs, locks):
        try:
            await stage.kube.create(NODES, _ghost(ghost, stage.namespace))
            await until(lambda: tells(is_condemned=False), within_s=PATIENCE_S)
            await jobs.complete()
            running = SlurmJobState(
                changed=datetime.now(UTC), job=7, state="RUNNING", nodes=name, is_running=True
            )
            await StateWriter(stage.bus, jobs, fence=None).record("7", running, revision=jobs.revision("7"))
            await until(is_locked, within_s=PATIENCE_S)

            await stage.kube.delete(NODES, ghost)
            await until(lambda: tells(is_condemned=True), within_s=PATIENCE_S)
            await until(lambda: locks.get(name) is None, within_s=PATIENCE_S)
            await stage.kube.create(NODES, _ghost(ghost, stage.namespace))
            await until(lambda: tells(is_condemned=False), within_s=PATIENCE_S)
            await until(is_locked, within_s=PATIENCE_S)
        finally:
            with anyio.move_on_after(PATIENCE_S, shield=True):
                await stage.kube.delete(NODES, ghost)
                for pod in await stage.kube.list_all(PODS, stage.namespace):
                    if pinned_node(pod) == ghost:  # No kubelet ends it.
                        await stage.kube.delete(PODS, pod.metadata.name, stage.namespace, grace_period_s=0)


def _ghost(name: str, role: str) -> dict[str, Any]:
    room = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {ROLE: role, "kubernetes.io/hostname": name}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": "10.1.250.250"}],
        },
    }


async def _is_infeasible(stage: Stage) -> bool:
    status = (await stage.kube.get(NODESETS, "gpu", stage.namespace)).status
    return status.number_feasible == status.current_number_scheduled == 0


async def test_a_verifier_may_write_the_pod_and_nobody_takes_it_away(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    second, third = (first + timedelta(hours=hours) for hours in (1, 2))

    async def verify(resource: Resource[Any], status: str, moment: datetime) -> None:
        check = {"type": wk.CONDITION_HPC_VERIFICATION, "status": status}
        where = (stage.name, stage.namespace) if resource is PODS else (stage.node,)
        body = {"status": {"conditions": [check | {"lastTransitionTime": _second(moment)}]}}
        await stage.kube.patch_status(resource, where[0], body, *where[1:], kind="strategic")

    try:
        await verify(PODS, "True", first)
        await stage.told(lambda state: state.hpc_verified == first)
        await verify(NODES, "False", second)
        await stage.told(lambda state: state.hpc_verified is None)
        await verify(PODS, "True", third)
        await stage.told(lambda state: state.hpc_verified == third)
        await stage.says("bad dimm")
        await stage.pod_shows(wk.CONDITION_SLURM_DRAIN, "True")  # Our own write leaves it there.
        shown = await _shown(stage, stage.name)
    finally:
        gone = {"status": {"conditions": [{"type": wk.CONDITION_HPC_VERIFICATION, "$patch": "delete"}]}}
        await stage.kube.patch_status(NODES, stage.node, gone, kind="strategic")

    assert shown is not None
    assert (shown.status, shown.last_transition_time) == ("True", third)


async def test_what_a_verifier_writes_on_the_pod_is_not_overwritten_by_who_has_not_seen_it(
    stage: Stage,
) -> None:
    await stage.told(lambda state: state.is_ready)
    kind, moment = wk.CONDITION_HPC_VERIFICATION, datetime(2026, 1, 1, tzinfo=UTC)

    def verified(status: str, hours: int) -> Condition:
        since = moment + timedelta(hours=hours)
        return Condition(type=kind, status=status, last_transition_time=since)

    kube = FencedKube(stage.kube, Leadership("test", 1, float("inf")))
    while True:
        before = await stage.kube.get(PODS, stage.name, stage.namespace)
        newer, older = (
            patch(before.metadata, before.status.conditions, MetadataPatch(conditions=(one,)), moment)
            for one in (verified("True", 2), verified("False", 1))
        )
        assert newer is not None
        assert older is not None
        with suppress(ConflictError):  # Its kubelet may have written just now.
            await kube.mark_pod(before, newer)
            break
    with pytest.raises(ConflictError):
        await kube.mark_pod(before, older)

    found = condition((await stage.kube.get(PODS, stage.name, stage.namespace)).status.conditions, kind)
    assert found is not None
    assert found.status == "True"


async def test_a_node_deleted_while_its_pod_terminates_and_clocks_that_are_ahead_stop_nobody(
    stage: Stage,
) -> None:
    ghost, name = f"{stage.namespace}-skew", "gpu-250-250"
    ahead = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    before = await stage.told(lambda state: state.is_ready)

    def told() -> KubePodState | None:
        return stage.pods.get(name)

    def is_told(phase: str) -> bool:
        state = told()
        return state is not None and state.phase == phase

    check = {"type": wk.CONDITION_HPC_VERIFICATION, "status": "True", "lastTransitionTime": _second(ahead)}
    ready = {"type": wk.CONDITION_READY, "status": "True", "lastTransitionTime": _second(ahead)}
    try:
        await stage.kube.create(NODES, _ghost(ghost, stage.namespace))
        await until(lambda: told() is not None, within_s=PATIENCE_S)
        await stage.kube.patch_status(NODES, ghost, {"status": {"conditions": [check]}}, kind="strategic")
        await until(lambda: _is_bound(stage, name, ghost), within_s=PATIENCE_S)
        running = {"status": {"phase": "Running", "conditions": [ready]}}
        await stage.kube.patch_status(PODS, name, running, stage.namespace, kind="strategic")
        await until(lambda: is_told("running") and _is_verified(told(), ahead), within_s=PATIENCE_S)
        shown = await _shown(stage, name)

        await stage.kube.delete(PODS, name, stage.namespace)  # No kubelet ends it.
        await until(lambda: is_told("terminating"), within_s=PATIENCE_S)
        await stage.kube.delete(NODES, ghost)
        await until(lambda: _is_condemned(told()), within_s=PATIENCE_S)
        await stage.kube.delete(PODS, name, stage.namespace, grace_period_s=0)
        await until(lambda: told() is None, within_s=PATIENCE_S)
    finally:
        with anyio.move_on_after(PATIENCE_S, shield=True):
            await stage.kube.delete(NODES, ghost)
            await stage.kube.delete(PODS, name, stage.namespace, grace_period_s=0)

    assert shown is not None
    assert shown.last_transition_time == ahead
    after = await stage.pod()
    assert after is not None
    assert after.metadata.uid == before.uid


async def _is_bound(stage: Stage, name: str, kube_node: str) -> bool:
    """Whether a Pod is bound; if not, do as the scheduler, which may not like a Node without kubelet."""
    pod = await stage.kube.find(PODS, name, stage.namespace)
    if pod is None or pod.spec.node_name:
        return pod is not None
    with suppress(ConflictError, KubeNotFoundError):
        await stage.kube.bind_pod(pod, kube_node)
    return False


def _is_verified(state: KubePodState | None, moment: datetime) -> bool:
    return state is not None and state.is_ready and state.hpc_verified == moment


def _is_condemned(state: KubePodState | None) -> bool:
    return state is not None and state.phase == "terminating" and state.is_condemned


async def _shown(stage: Stage, name: str) -> Condition | None:
    """Return what the Pod shows of its Node's verification, as soon as it does."""

    async def found() -> Condition | None:
        pod = await stage.kube.get(PODS, name, stage.namespace)
        return condition(pod.status.conditions, wk.CONDITION_HPC_VERIFICATION)

    async def is_there() -> bool:
        return await found() is not None

    await until(is_there, within_s=PATIENCE_S)
    return await found()


def _second(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_node_in_no_nodeset_costs_no_call_and_no_look(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    port = free_port()
    stage.service.end(signal.SIGTERM)
    stage.service.change(HTTP_PORT=str(port))
    stage.service.start()
    other = f"{stage.namespace}-other"
    costs: list[Counter[str]] = []

    async def span() -> Counter[str]:
        """Let a Node beat and change, until the controller has seen that, and return what this cost."""
        before = await _counts(port)
        for number in range(20):
            beat = {
                "type": wk.CONDITION_READY,
                "status": "True",
                "lastHeartbeatTime": _second(datetime.now(UTC)),
            }
            beat["message"] = f"beat {len(costs)}.{number}"
            await stage.kube.patch_status(NODES, other, {"status": {"conditions": [beat]}}, kind="strategic")
        looks = before["looks nodesets"]
        for number in range(3):  # It may be a Node for a NodeSet now: that alone is looked at.
            labels = {"test.example/other": f"{len(costs)}-{number}"}
            await stage.kube.patch(NODES, other, {"metadata": {"labels": labels}})
            await until(lambda looks=looks: _has_looked(port, looks), within_s=PATIENCE_S)
            looks = (await _counts(port))["looks nodesets"]
        cost = await _counts(port)
        cost.subtract(before)
        return cost

    try:
        await stage.kube.create(NODES, _ghost(other, "nobody"))
        await until(lambda: _is_answered(stage), within_s=PATIENCE_S)
        await _settled(stage)
        while len(costs) < 5 and not any(_is_nothing(cost) for cost in costs):  # A kubelet may disturb one.
            costs.append(await span())
    finally:
        await stage.kube.delete(NODES, other)

    assert any(_is_nothing(cost) for cost in costs), costs


def _is_nothing(cost: Counter[str]) -> bool:
    return cost["calls"] == cost["looks nodes"] == cost["looks pods"] == cost["looks files"] == 0


async def _has_looked(port: int, before: int) -> bool:
    return (await _counts(port))["looks nodesets"] > before


async def _counts(port: int) -> Counter[str]:
    """Return what the service says of its calls, without its lease's, and of its looks, by loop."""
    async with httpx.AsyncClient(trust_env=False, timeout=WITHIN_S) as http:
        text = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    counts: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "sunk_kube_requests_total" and sample.labels["resource"] != LEASES.plural:
                counts["calls"] += int(sample.value)
            elif sample.name == "sunk_keys_handled_total":
                counts[f"looks {sample.labels['loop']}"] += int(sample.value)
    return counts


async def test_why_a_node_is_as_it_is_can_be_asked(stage: Stage) -> None:
    await stage.told(lambda state: state.is_ready)
    cordon = {
        "metadata": {"annotations": {wk.ANNOTATION_CORDON_REASON: "bad fan"}},
        "spec": {"unschedulable": True},
    }
    await stage.kube.patch(NODES, stage.node, cordon)
    await stage.told(lambda state: state.is_cordoned)

    found = await ask(stage.bus, CLUSTER, ExplainKubeNode(node=stage.name))
    unknown = await ask(stage.bus, CLUSTER, ExplainKubeNode(node="nobody"))

    assert isinstance(found, Explanation)
    assert ("its Node is cordoned", "bad fan") in [(one.what, one.because) for one in found.findings]
    assert isinstance(unknown, Refused)
    assert unknown.code == "unknown_node"


LONG: Final = ".".join(("n" * 62,) * 4)[:253]
ODD_NODES: Final = {"odd-none": "", "odd-six": "fd00::12", "odd-twin": "10.8.0.7", LONG: "10.9.0.7"}
"""Nodes without address, with IPv6, with the same octets, and with the longest name, and their addresses."""


ODD_VALUES: Final = {"odd-none": "", "odd-six": "1.b_C-d"}
"""What a label says that makes a feature: nothing, and all that is allowed."""


async def test_nodes_of_any_name_address_and_label_get_pods_of_their_own_names(stage: Stage) -> None:
    labels = {"test.example/odd": stage.namespace}
    for name, address in ODD_NODES.items():
        addresses = [{"type": "InternalIP", "address": address}] if address else []
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        status = {"addresses": addresses, "allocatable": room, "capacity": room}
        own = {"test.example/value": ODD_VALUES[name]} if name in ODD_VALUES else {}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {**labels, **own}}}
        await stage.kube.create(NODES, {**body, "status": status})
    good = await stage.kube.get(NODESETS, "gpu", stage.namespace)
    tolerations = [{"operator": "Exists"}]  # Nobody's kubelet: they are not ready.
    spec = {**good.spec.template.spec, "affinity": {}, "nodeSelector": labels, "tolerations": tolerations}
    body = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": "odd"},
        "spec": {
            "cluster": CLUSTER,
            "features": {"dynamicFeatures": {"test.example/value": {"prefix": "value-"}}},
            "template": {"spec": spec},
        },
    }
    try:
        await stage.kube.create(NODESETS, body, stage.namespace)

        async def are_named() -> bool:
            nodes = [node for node in await stage.kube.list_all(NODES) if node.metadata.name in ODD_NODES]
            return all(node.metadata.labels.get(wk.LABEL_POD) for node in nodes)

        await until(are_named, within_s=PATIENCE_S)
        slices = await stage.kube.list_all(NODESLICES, stage.namespace)
        entries = {entry.kube_node: entry.name for one in slices for entry in one.nodes}
        found = await stage.kube.list_all(PODS, stage.namespace)
        pods = {pod.metadata.name: pod.metadata.annotations.get(wk.ANNOTATION_FEATURES) for pod in found}
    finally:
        for name in ODD_NODES:
            await stage.kube.delete(NODES, name)
        for pod in await stage.kube.list_all(PODS, stage.namespace):
            if pod.metadata.name != stage.name:
                await stage.kube.delete(PODS, pod.metadata.name, stage.namespace, grace_period_s=0)

    assert entries.keys() >= ODD_NODES.keys()
    assert pods.keys() == set(entries.values())
    assert {pods[entries[name]] for name in (LONG, "odd-twin", "odd-none")} == {""}
    assert pods[entries["odd-six"]] == "value-1.b_C-d"
    assert len(pods) == len(ODD_NODES) + 1
    assert {entries[LONG], entries["odd-twin"]} & {"odd-000-007"}


PORT: Final = 29618
BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "odd-request": (
        {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1.2.3"}}}]},
        "'1.2.3'",
    ),
    "nowhere": ({"nodeSelector": {"test.example/nowhere": "never"}}, "node selector does not match"),
    "same-nodes": ({}, "belongs to NodeSet"),
}
"""What a template says wrong, and what its NodeSet's status says of it."""
BAD_ELSEWHERE: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "no-volume": ({"volumeMounts": [{"name": "none", "mountPath": "/none"}]}, "volumeMounts[0].name"),
    "taken-port": ({"ports": [{"containerPort": PORT, "hostPort": PORT}]}, "free ports"),
}
"""The same of its container, on a Node that would do."""


async def test_bad_nodesets_say_what_is_wrong_and_disturb_no_other(stage: Stage) -> None:
    before = await stage.told(lambda state: state.is_ready)
    first, second, *_ = sorted(
        {node.metadata.name for node in await stage.kube.list_all(NODES)} - {stage.node}
    )
    await _take_port(stage, second)
    bad = dict(BAD)
    for (name, (wrong, text)), kube_node in zip(BAD_ELSEWHERE.items(), (first, second), strict=True):
        container = {"name": "slurmd", "image": "localhost/sunk-pause:1", **wrong}
        selector = {wk.LABEL_HOSTNAME: kube_node}
        bad[name] = {"containers": [container], "affinity": {}, "nodeSelector": selector}, text
    good = await stage.kube.get(NODESETS, "gpu", stage.namespace)
    for name, (wrong, _) in bad.items():
        template = {"spec": {**good.spec.template.spec, **wrong}}
        body = {
            "apiVersion": NODESETS.api_version,
            "kind": NODESETS.kind,
            "metadata": {"name": name},
            "spec": {"cluster": CLUSTER, "template": template},
        }
        await stage.kube.create(NODESETS, body, stage.namespace)
    for name, (_, text) in bad.items():
        await until(lambda name=name, text=text: _says(stage, name, text), within_s=PATIENCE_S)
        await until(lambda name=name: _is_event(stage, name), within_s=PATIENCE_S)
    await stage.kube.delete(PODS, stage.name, stage.namespace)
    await stage.told(lambda state: state.is_ready and state.uid != before.uid)


async def _take_port(stage: Stage, kube_node: str) -> None:
    container = {
        "name": "main",
        "image": "localhost/sunk-pause:1",
        "ports": [{"containerPort": PORT, "hostPort": PORT}],
    }
    spec = {
        "nodeName": kube_node,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "port"}, "spec": spec}
    await stage.kube.create(PODS, body, stage.namespace)


async def _says(stage: Stage, name: str, text: str) -> bool:
    """Whether a condition of that NodeSet says so."""
    conditions = (await stage.kube.get(NODESETS, name, stage.namespace)).status.conditions
    return any(one.status == "False" and text in one.message for one in conditions)


async def _is_event(stage: Stage, name: str) -> bool:
    events = await stage.kube.list_all(EVENTS, stage.namespace)
    return any(event.metadata.name.startswith(f"{name}.") for event in events)
