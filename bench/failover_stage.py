"""Two of everything on one machine: what `failover` kills, and how it is started again.

A real API server whose Nodes have no kubelet, three nats-servers, two slurmctld and two slurmrestd with a
real slurmd for each node, and two processes of each service. Connections to slurmrestd and to the
hook-gateway go through `Balanced`, as through a Service of Kubernetes whose endpoints have not changed yet.
"""

import argparse
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import anyio
import httpx
from failover_parts import Balanced, Replica
from nodesets_stage import CLUSTER, NAMESPACE, each, nodeset, register, run_pod
from waiting import until

from sunk_events import subjects
from sunk_events.nodesets import KubePodState
from sunk_hook_gateway.testing.cluster import HOOKS, Cluster
from sunk_kube.client import KubeClient, connect
from sunk_kube.crds import crds
from sunk_kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODESETS, PODS
from sunk_lab.config import from_environment
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_lab.nats_cluster import NatsCluster
from sunk_lab.ports import free_port
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import SECOND_SLURMRESTD, HostSlurm
from sunk_lab.slurm.releases import release_of
from sunk_runtime.errors import SunkError
from sunk_runtime.jetstream import Bus, BusSettings
from sunk_runtime.jetstream import connect as connect_bus
from sunk_slurm.client import SlurmClient
from sunk_slurm.tokens import KeyTokens

T = TypeVar("T")
WITHIN_S: Final = 300.0
ASK_AGAIN_S: Final = 0.05
NODES: Final = 3
LEASES: Final[Mapping[str, str]] = {
    "syncer": "syncer",
    "nodeset-controller": "sunk-nodeset-controller",
    "pod-scheduler": f"sunk-pod-scheduler-{CLUSTER}",
}
"""What the leader of each service leads."""
GATEWAY: Final = "hook-gateway"


class Sizes(argparse.Namespace):
    """How much is measured, and with which settings."""

    rounds: int
    only: list[str] | None
    lease_s: int
    slurmctld_timeout_s: int
    slurm: str


@dataclass
class Stage:
    """What is measured, and with what."""

    sizes: Sizes
    kube: KubeClient
    bus: Bus
    nats: NatsCluster
    slurm: HostSlurm
    clients: tuple[SlurmClient, SlurmClient]
    """One to each slurmrestd, so that what is looked at does not die with what is killed."""
    replicas: Mapping[str, tuple[Replica, Replica]]
    http: httpx.AsyncClient
    job: int = 0
    """A job that runs throughout."""
    retiring: NatsServer | None = None
    """It ends by itself, in half a minute."""

    @property
    def losses(self) -> int:
        """How often a process that lived lost its lease."""
        return sum(replica.losses for replica in chain.from_iterable(self.replicas.values()))

    async def leader(self, service: str) -> Replica:
        """Return the replica of *service* that leads, once exactly one says so: a lease may be lost."""
        line = f'sunk_leader{{lease="{LEASES[service]}"}} 1.0'
        leaders: list[Replica] = []

        async def is_led() -> bool:
            leaders[:] = [one for one in self.replicas[service] if line in await one.metrics(self.http)]
            return len(leaders) == 1

        await until(is_led, within_s=WITHIN_S)
        return leaders[0]

    async def asked(self, question: Callable[[SlurmClient], Awaitable[T]]) -> T:
        """Return what the first slurmrestd that answers says; ask again until one does."""
        with anyio.fail_after(WITHIN_S):
            while True:
                for client in self.clients:
                    with suppress(SunkError):
                        return await question(client)
                await anyio.sleep(ASK_AGAIN_S)

    async def drain_reason(self, node: str) -> str | None:
        """Return why Slurm drains *node*; None: it does not."""
        found = await self.asked(lambda client: client.node(node))
        return found.reason if found is not None and found.state_now.is_drain else None

    async def job_words(self, job: int) -> tuple[str, ...]:
        """Return the words of the job's state; none: Slurm has no such job."""
        found = await self.asked(lambda client: client.job(job))
        return found.job_state if found is not None else ()

    def recovered(self) -> list[str]:
        """Return what the logs of both slurmctld say of the jobs that they had after a start."""
        words = (
            "job state",
            "Recovered information",
            "Old state possible",
            "REQUEST_CONTROL",
            "_shutdown_bu",
        )
        return [
            f"{file.stem}: {line}"
            for file in sorted(self.slurm.logs.glob("slurmctld*.log"))
            for line in file.read_text(errors="replace").splitlines()
            if any(word in line for word in words)
        ]

    async def stream_leader(self) -> NatsServer:
        """Return the NATS server that leads the stream by which a cordon reaches the syncer."""
        stream = subjects.bucket_stream(subjects.bucket(CLUSTER, KubePodState))
        while True:  # Three servers may still elect one.
            with suppress(SunkError):
                found = await self.bus.js.stream_info(stream)
                break
            await anyio.sleep(ASK_AGAIN_S)
        name = found.cluster.leader if found.cluster else ""
        return self.nats.servers[int((name or "n0").removeprefix("n"))]

    async def start_all(self) -> None:
        """Start what does not run, and return when each service has one leader and all are ready."""
        await anyio.to_thread.run_sync(self._start_servers)
        for pair in self.replicas.values():
            for replica in pair:
                replica.start()
        for service, pair in self.replicas.items():
            for replica in pair:
                await until(partial(replica.is_ready, self.http), within_s=WITHIN_S)
            if service in LEASES:
                await self.leader(service)

    def _start_servers(self) -> None:
        if self.retiring is not None:
            self.retiring.stop()
            self.retiring = None
        self.nats.start()
        for daemon in ("slurmctld", "slurmrestd", SECOND_SLURMRESTD):
            self.slurm.start_daemon(daemon)
        wait_for("both slurmctld", self._do_both_answer)

    def _do_both_answer(self) -> bool:
        return " is DOWN" not in self.slurm.exec("scontrol", "ping")


@asynccontextmanager
async def staged(sizes: Sizes, folder: Path) -> AsyncGenerator[Stage]:
    """Start everything; afterwards each Node has a Slurm node."""
    slurm = HostSlurm(
        release_of(sizes.slurm),
        folder / "slurm",
        cache=from_environment().cache,
        report=lambda line: print(line, file=sys.stderr, flush=True),
        # As the NodeSet's Pods on the Nodes of the benchmark are called.
        nodes=NodeRange(count=NODES, first_port=0, prefix="gpu-000-0"),
        more=(*HOOKS, f"SlurmctldTimeout={sizes.slurmctld_timeout_s}"),
        has_backup=True,
    )
    try:
        slurm.start()
        slurm.start_daemon(SECOND_SLURMRESTD)
        slurm.start_backup()
        slurmrestd = Balanced(*(int(url.rpartition(":")[2]) for url in (slurm.url, slurm.second_url)))
        gateway = Balanced(free_port(), free_port())
        Cluster(slurm, gateway.url)
        with reserved_lab() as lab, NatsCluster(folder / "nats", sync="always") as nats:
            lab.up(nodes=1)
            replicas = _replicas(
                sizes=sizes,
                folder=folder,
                lab=lab,
                nats=nats,
                slurm=slurm,
                slurmrestd=slurmrestd,
                gateway=gateway,
            )
            settings = BusSettings(url=nats.url, replicas=3)
            async with (
                connect("bench", kubeconfig=lab.kubeconfig) as kube,
                connect_bus(settings, "bench") as bus,
                _client(slurm, slurm.url) as first,
                _client(slurm, slurm.second_url) as second,
                httpx.AsyncClient(trust_env=False, timeout=5.0) as http,
                anyio.create_task_group() as tasks,
            ):
                await bus.provision(CLUSTER, settings)
                await _furnish(lab, kube)
                for balanced in (slurmrestd, gateway):
                    tasks.start_soon(balanced.run)
                stage = Stage(sizes, kube, bus, nats, slurm, (first, second), replicas, http)
                try:
                    await stage.start_all()
                    await _run_pods(kube, slurm)
                    yield stage
                finally:
                    tasks.cancel_scope.cancel()
                    for replica in chain.from_iterable(replicas.values()):
                        replica.end()
    finally:
        slurm.stop()


def _client(slurm: HostSlurm, url: str) -> SlurmClient:
    return SlurmClient(url, KeyTokens(slurm.jwt_key), timeout_s=5.0)


def _replicas(
    *,
    sizes: Sizes,
    folder: Path,
    lab: KubeLab,
    nats: NatsCluster,
    slurm: HostSlurm,
    slurmrestd: Balanced,
    gateway: Balanced,
) -> dict[str, tuple[Replica, Replica]]:
    """Return two processes of each service, not started."""
    key, token = folder / "key", folder / "token"
    key.write_bytes(os.urandom(32))
    token.write_text(slurm.exec("cat", "/lab/etc/token"))
    bus = {"NATS_URL": nats.url, "NATS_REPLICAS": "3"}
    lease = {"LEASE_TTL_S": str(sizes.lease_s)}
    kube = {"KUBECONFIG": str(lab.kubeconfig)}
    cluster = {"CLUSTER": CLUSTER}
    calls = {"SLURM_URL": slurmrestd.url, "SLURM_KEY_FILE": str(slurm.jwt_key)}
    settings = {
        "syncer": {**bus, **cluster, **lease, **calls},
        "nodeset-controller": {**bus, **lease, **kube, "CLUSTERS": CLUSTER, "LEASE_NAMESPACE": NAMESPACE},
        "pod-scheduler": {
            **bus,
            **cluster,
            **lease,
            **kube,
            **calls,
            "NAMESPACE": NAMESPACE,
            "KEY_FILE": str(key),
            "HOOKS_URL": gateway.url,
        },
    }
    made = {
        service: (Replica(service, free_port(), own, folder), Replica(service, free_port(), own, folder))
        for service, own in settings.items()
    }
    own = {**bus, **cluster, **kube, "NAMESPACE": NAMESPACE, "STATIC_TOKEN_FILE": str(token)}
    first, second = (Replica(GATEWAY, port, own, folder) for port in gateway.ports)
    return {**made, GATEWAY: (first, second)}


async def _furnish(lab: KubeLab, kube: KubeClient) -> None:
    for crd in crds():
        await kube.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
    await kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"

    async def is_furnished() -> bool:
        return b'"default"' in await kube.get_raw(accounts)

    await until(is_furnished, within_s=WITHIN_S)
    for process in lab.status():
        # It would call Nodes without a kubelet dead, and take their Pods away.
        if process.name == "kube-controller-manager" and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
    await each(range(1, NODES + 1), lambda number: register(kube, number))


async def _run_pods(kube: KubeClient, slurm: HostSlurm) -> None:
    """Make the NodeSet, and do what the kubelets of its Pods would."""
    await kube.create(NODESETS, nodeset(), NAMESPACE)
    for name in slurm.node_names:

        async def is_placed(name: str = name) -> bool:
            found = await kube.find(PODS, name, NAMESPACE)
            return found is not None and bool(found.spec.node_name)

        await until(is_placed, within_s=WITHIN_S)
        await run_pod(kube, await kube.get(PODS, name, NAMESPACE))
