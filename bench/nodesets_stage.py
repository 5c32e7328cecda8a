"""What nodeset-controller is measured on: a real API server, Nodes without kubelets, a real NATS.

The lab's controller-manager is stopped once the namespace is furnished: it would call every Node without a
kubelet dead after 10 s, and renewing 5,000 leases that often costs more than what is measured.
"""

import argparse
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import msgspec
from figures import Usage
from waiting import until

from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.subjects import STATISTICS_KEY
from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient, connect
from sunk_kube.crds import crds
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, condition
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTION_BUDGETS,
    LEASES,
    NAMESPACES,
    NODES,
    NODESETS,
    NODESLICES,
    PODS,
)
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_lab.reserved import reserved_lab
from sunk_nodeset_controller.nodesets.template import manifest
from sunk_nodeset_controller.testing import Service
from sunk_runtime.jetstream import BusSettings
from sunk_runtime.jetstream import connect as connect_bus
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

T = TypeVar("T")

CLUSTER: Final = "bench"
NAMESPACE: Final = "bench"
LEASE: Final = "bench"
ROLE: Final = "bench.example/nodeset"
WITHIN_S: Final = 1800.0
AT_ONCE: Final = 16
EVERY_S: Final = 0.2
"""Between two looks at thousands of Pods: looking must not cost what is measured."""


class Sizes(argparse.Namespace):
    """How much is measured."""

    nodes: int
    changes: int
    rate: float
    seconds: float


@dataclass
class Stage:
    """What is measured, and with what."""

    sizes: Sizes
    kube: KubeClient
    pods: Reflector[Pod]
    nodes: Reflector[Node]
    made: tuple[Reflector[Any], ...]
    """NodeSets, slices and disruption budgets."""
    service: Service
    slurm: StateWriter[SlurmNodeState]
    statistics: StateWriter[SlurmStatisticsState]
    spoken: int = 0
    names: tuple[str, ...] = ()
    """The Slurm nodes, as soon as they have Pods."""
    seen: dict[str, float] = field(default_factory=dict[str, float])
    """When a Pod's Slurm drain was last seen to be as it was asked for."""

    def usage(self) -> Usage:
        """Return the usage of the service from now on."""
        return Usage(self.service.pid)

    async def speak(self) -> None:
        """Play a syncer whose Slurm answers, until cancelled."""
        while True:
            self.spoken += 1
            state = SlurmStatisticsState(changed=datetime.now(UTC), jobs_submitted=self.spoken)
            revision = self.statistics.view.revision(STATISTICS_KEY)
            await self.statistics.record(STATISTICS_KEY, state, revision=revision)
            await anyio.sleep(10)

    async def says(self, name: str, reason: str) -> None:
        """Say on the bus that a node is drained for *reason*, or not if there is none."""
        state = SlurmNodeState(
            changed=datetime.now(UTC), node=name, state="IDLE", is_drain=bool(reason), reason=reason
        )
        await self.slurm.record(name, state, revision=self.slurm.view.revision(name))

    def shows(self, name: str, reason: str) -> bool:
        """Whether a Pod shows that drain."""
        pod = self.pods.get(f"{NAMESPACE}/{name}")
        found = condition(pod.status.conditions, wk.CONDITION_SLURM_DRAIN) if pod is not None else None
        return found is not None and found.message == reason and (found.status == "True") is bool(reason)

    async def is_led(self) -> None:
        """Return when the service leads: what is measured from here on is not its start."""

        async def is_held() -> bool:
            lease = await self.kube.find(LEASES, LEASE, NAMESPACE)
            return lease is not None and bool(lease.spec.holder_identity)

        await until(is_held, within_s=WITHIN_S)

    async def all_show(self, reason: str) -> None:
        """Return when every Pod shows that drain, looking at each only until it does."""
        left = set(self.names)

        async def is_done() -> bool:
            await anyio.sleep(EVERY_S)
            left.difference_update([name for name in left if self.shows(name, reason)])
            return not left

        await until(is_done, within_s=WITHIN_S)

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of every Pod and Node of ours, and of all else that is written."""
        own = [node for node in self.nodes.values() if ROLE in node.metadata.labels]
        found = {one.key: one.metadata.resource_version for one in (*self.pods.values(), *own)}
        for view in self.made:
            kind = view.resource.plural
            found |= {f"{kind} {one.key}": one.metadata.resource_version for one in view.values()}
        return found


async def each(names: Iterable[T], deed: Callable[[T], Awaitable[object]]) -> None:
    """Do *deed* for each, several at a time."""
    left = iter(names)

    async def some() -> None:
        for name in left:
            await deed(name)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(some)


def kube_node(number: int) -> dict[str, Any]:
    """Return a Node as its kubelet would register it."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "bench"}
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"bench{number:05}",
            "labels": {ROLE: "bench", "kubernetes.io/hostname": f"bench{number:05}"},
        },
        "status": {
            "capacity": room,
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": f"10.0.{number >> 8}.{number & 255}"}],
            "conditions": [{**ready, "lastHeartbeatTime": moment, "lastTransitionTime": moment}],
        },
    }


async def register(kube: KubeClient, number: int) -> None:
    """Make a Node, and take away the taint that admission puts on each new one."""
    made = kube_node(number)
    await kube.create(NODES, made)
    await kube.patch(NODES, made["metadata"]["name"], {"spec": {"taints": None}}, kind="merge")


def nodeset() -> dict[str, Any]:
    """Return the NodeSet over all of those Nodes."""
    return {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": "gpu"},
        "spec": {
            "cluster": CLUSTER,
            "template": {
                "spec": {
                    "automountServiceAccountToken": False,
                    "nodeSelector": {ROLE: "bench"},
                    "containers": [{"name": "slurmd", "image": "localhost/sunk-pause:1"}],
                }
            },
        },
    }


def bare_pod(number: int) -> dict[str, Any]:
    """Return a Pod as the controller makes them, that belongs to no NodeSet."""
    made = manifest(
        msgspec.convert(nodeset(), NodeSet),
        msgspec.convert(kube_node(number), Node),
        f"bare-{number:05}",
        wk.TAINT_LOCK,
    )
    return {
        **made,
        "metadata": {"name": made["metadata"]["name"], "annotations": made["metadata"]["annotations"]},
    }


async def run_pod(kube: KubeClient, pod: Pod) -> None:
    """Do what the kubelet of a Pod would: it runs, and is ready."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": moment}
    body = {"status": {"phase": "Running", "podIP": "10.9.9.9", "conditions": [ready]}}
    meta = pod.metadata
    await kube.patch_status(PODS, meta.name, body, meta.namespace, kind="strategic", uid=meta.uid)


@asynccontextmanager
async def staged(sizes: Sizes, folder: Path) -> AsyncGenerator[Stage]:
    """Start everything but the service, and register the Nodes."""
    with reserved_lab() as lab, NatsServer(folder / "nats") as nats:
        lab.up(nodes=1)
        settings = BusSettings(url=nats.url)
        async with (
            connect("bench", kubeconfig=lab.kubeconfig) as kube,
            connect_bus(settings, "bench") as bus,
            anyio.create_task_group() as tasks,
        ):
            await _furnish(lab, kube, sizes)
            await bus.provision(CLUSTER, settings)
            slurm = StateView(bus, CLUSTER, SlurmNodeState)
            statistics = StateView(bus, CLUSTER, SlurmStatisticsState)
            pods, nodes = Reflector(kube, PODS, labels=wk.LABEL_NODESET), Reflector(kube, NODES)
            made = Reflector(kube, NODESETS), Reflector(kube, NODESLICES), Reflector(kube, DISRUPTION_BUDGETS)
            for view in (pods, nodes, *made):
                tasks.start_soon(view.run)
                await view.complete()
            service = Service(
                {
                    "CLUSTERS": CLUSTER,
                    "KUBECONFIG": str(lab.kubeconfig),
                    "NATS_URL": nats.url,
                    "HTTP_PORT": "0",
                    "LEASE_NAMESPACE": NAMESPACE,
                    "LEASE_NAME": LEASE,
                },
                folder / "service.log",
            )
            async with following(slurm, statistics):
                await slurm.complete()
                await statistics.complete()
                stage = Stage(
                    sizes,
                    kube,
                    pods,
                    nodes,
                    made,
                    service,
                    StateWriter(bus, slurm, fence=None),
                    StateWriter(bus, statistics, fence=None),
                )
                tasks.start_soon(stage.speak)
                try:
                    yield stage
                finally:
                    service.end(signal.SIGKILL)
                    tasks.cancel_scope.cancel()


async def _furnish(lab: KubeLab, kube: KubeClient, sizes: Sizes) -> None:
    for crd in crds():
        await kube.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await kube.create(NAMESPACES, body)
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"

    async def is_furnished() -> bool:
        return b'"default"' in await kube.get_raw(accounts)

    await until(is_furnished, within_s=WITHIN_S)
    for process in lab.status():
        if process.name == "kube-controller-manager" and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
    await each(range(1, sizes.nodes + 1), lambda number: register(kube, number))
