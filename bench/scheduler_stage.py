"""What the pod-scheduler is measured on: a real API server, a real slurmctld with real slurmd, a real NATS.

Nodes have no kubelet: a Pod is bound and stays so. Syncer, hook-gateway and pod-scheduler are processes.
There is no prolog, because there is no NodeSet whose Node it could lock.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import anyio
import httpx
from nodesets_stage import NAMESPACE, each, register
from scheduler_costs import Costs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from syncer_stage import Usage
from waiting import until

from sunk_events import subjects
from sunk_events.codec import decode_event
from sunk_events.jobs import SlurmJobState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube.client import KubeClient, connect
from sunk_kube.reflector import Reflector
from sunk_kube.resources import NAMESPACES, PODS
from sunk_lab.config import from_environment
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import release_of
from sunk_runtime.http import Health, serve_http
from sunk_runtime.jetstream import Bus, BusSettings, Message
from sunk_runtime.jetstream import connect as connect_bus
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.client import SlurmClient
from sunk_slurm.tokens import KeyTokens
from sunk_syncer.testing.process import SyncerProcess
from sunk_syncer.testing.stage import CLUSTER

WITHIN_S: Final = 300.0
CPUS: Final = 32
_FAR: Final = float("inf")
_POLL_S: Final = 45.0


class Sizes(argparse.Namespace):
    """How much is measured."""

    nodes: int
    rounds: int
    bursts: list[int]
    release: int
    jobs: int
    gangs: int
    beside: int
    memory: int
    restart: int
    slurm: str


class Service:
    """One of our services as a process, its log in a file."""

    def __init__(self, module: str, settings: Mapping[str, str], folder: Path) -> None:
        prefix = module.upper() + "_"
        environment = {"PATH": os.environ["PATH"]}  # noqa: TID251 - a child's environment is made here
        environment |= {prefix + name: value for name, value in settings.items()}
        with (folder / f"{module}.log").open("wb") as log:
            argv = [sys.executable, "-m", module]
            self._process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal, at once if not said otherwise."""
        self._process.send_signal(number)
        self._process.wait()


@dataclass
class Stage:
    """What is measured, and with what."""

    sizes: Sizes
    kube: KubeClient
    slurm: HostSlurm
    client: SlurmClient
    placements: StateView[PlacementState]
    jobs: StateView[SlurmJobState]
    pods: Reflector[Any]  # Any: of whose struct only the Node is read.
    calls_url: str
    pids: dict[str, int] = field(default_factory=dict[str, int])
    """Processes whose processor time is told, by name."""
    facts: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """When the first fact of a kind about a Pod came, by kind and uid."""
    called: dict[str, float] = field(default_factory=dict[str, float])
    """When a bare job's script called, by the job's id."""
    scheduler_url: str = ""
    replace_scheduler: Callable[[int], None] = field(default=lambda _: None)
    """Ends it by a signal, and starts another."""

    def at(self, kind: str, uid: str) -> float:
        """Return when that fact came; never, if it did not yet."""
        return self.facts.get((kind, uid), _FAR)

    async def scheduler_says(self) -> dict[str, float]:
        """Return the scheduler's metrics by name and labels; none while it does not answer."""
        async with httpx.AsyncClient(trust_env=False, verify=False) as http:  # noqa: S501 - no TLS at all
            try:
                text = (await http.get(f"{self.scheduler_url}/metrics")).text
            except httpx.TransportError:
                return {}
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def usage(self) -> Usage:
        """Return the usage of the scheduler from now on."""
        return Usage(self.pids["scheduler"])

    def costs(self) -> Costs:
        """Return everybody's processor time from now on."""
        return Costs(self.pids, self.pids["slurmctld"])

    async def note(self, message: Message) -> None:
        """Remember when a fact came."""
        fact = decode_event(message.data)
        self.facts.setdefault((type(fact).__name__, fact.subject), time.perf_counter())

    async def hear(self, request: Request) -> Response:
        """Remember when a bare job's script called, as the gateway would answer it."""
        self.called[request.path_params["job"]] = time.perf_counter()
        return Response(status_code=200)

    @staticmethod
    async def let_wait(_: Request) -> Response:
        """Hold a bare job's script as the gateway does while its Pod lives."""
        await anyio.sleep(_POLL_S)
        return Response(status_code=204)

    @staticmethod
    async def let_go(_: Request) -> Response:
        """Let a bare job's script end that was told to."""
        return Response(status_code=200)

    async def asked(self, rpc: str) -> int:
        """Return how often slurmctld was asked that."""
        counts = {
            found.message_type: found.count for found in (await self.client.diag()).rpcs_by_message_type
        }
        return counts.get(rpc, 0)


@asynccontextmanager
async def staged(sizes: Sizes, folder: Path) -> AsyncGenerator[Stage]:
    """Start everything, and make the Nodes of Slurm's nodes known."""
    slurm = HostSlurm(
        release_of(sizes.slurm),
        folder / "slurm",
        cache=from_environment().cache,
        report=lambda line: print(line, file=sys.stderr, flush=True),
        nodes=NodeRange(count=sizes.nodes, first_port=0, cpus=CPUS, memory_mib=CPUS * 1000),
        more=("KillWait=30", f"MaxJobCount={sizes.jobs + sizes.beside + 50_000}"),
    )
    try:
        slurm.start()
        with reserved_lab() as lab, NatsServer(folder / "nats") as nats:
            lab.up(nodes=1)
            async with (
                connect("bench", kubeconfig=lab.kubeconfig) as kube,
                connect_bus(BusSettings(url=nats.url), "bench") as bus,
                SlurmClient(slurm.url, KeyTokens(slurm.jwt_key), timeout_s=60.0) as client,
            ):
                await bus.provision(CLUSTER, BusSettings(url=nats.url))
                await _furnish(lab, kube, sizes)
                await _name_nodes(bus, slurm)
                async with _watched(sizes, slurm, kube, client, bus) as stage:
                    with _services(folder, lab, nats.url, slurm) as ours:
                        stage.pids |= ours.pids | _pids(lab, slurm, nats)
                        stage.scheduler_url = ours.scheduler_url

                        def replace_scheduler(number: int) -> None:
                            ours.replace_scheduler(number)
                            stage.pids |= ours.pids

                        stage.replace_scheduler = replace_scheduler
                        yield stage
    finally:
        slurm.stop()


@asynccontextmanager
async def _watched(
    sizes: Sizes, slurm: HostSlurm, kube: KubeClient, client: SlurmClient, bus: Bus
) -> AsyncGenerator[Stage]:
    placements, jobs = StateView(bus, CLUSTER, PlacementState), StateView(bus, CLUSTER, SlurmJobState)
    pods = Reflector(kube, PODS, namespace=NAMESPACE)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    stage = Stage(sizes, kube, slurm, client, placements, jobs, pods, url)
    async with (
        following(placements, jobs),
        bus.subscribed(subjects.facts(CLUSTER), stage.note),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(pods.run)
        routes = [
            Route("/v1/jobs/{job}/started", stage.hear, methods=["POST"]),
            Route("/v1/jobs/{job}/outcome", stage.let_wait),
            Route("/v1/jobs/{job}/release", stage.let_go, methods=["POST"]),
        ]
        tasks.start_soon(partial(serve_http, "127.0.0.1", port, Health(), routes))
        await pods.complete()
        yield stage
        tasks.cancel_scope.cancel()


class _services:  # noqa: N801 - used as a function
    """Syncer, hook-gateway and pod-scheduler, ended in the end."""

    def __init__(self, folder: Path, lab: KubeLab, nats_url: str, slurm: HostSlurm) -> None:
        self._folder, self._slurm, self._port = folder, slurm, free_port()
        self._scheduler_port = free_port()
        (folder / "key").write_bytes(os.urandom(32))
        (folder / "token").write_text("t" * 32)
        self._common = {"CLUSTER": CLUSTER, "NATS_URL": nats_url}
        self._kube = {"KUBECONFIG": str(lab.kubeconfig), "NAMESPACE": NAMESPACE}
        self._syncer = SyncerProcess(
            folder,
            cluster=CLUSTER,
            nats_url=nats_url,
            slurm_url=slurm.url,
            slurm_key_file=str(slurm.jwt_key),
        )
        self._made: dict[str, Service] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Their process ids."""
        return {"syncer": self._syncer.pid} | {name: service.pid for name, service in self._made.items()}

    @property
    def scheduler_url(self) -> str:
        """Where the scheduler's metrics are."""
        return f"http://127.0.0.1:{self._scheduler_port}"

    def __enter__(self) -> Self:
        """Start them."""
        self._syncer.start()
        gateway = {
            "HTTP_PORT": str(self._port),
            "STATIC_TOKEN_FILE": str(self._folder / "token"),
            "MAX_CONNECTIONS_PER_ADDRESS": "30000",  # Every placeholder calls from this machine.
        }
        common = self._common | self._kube
        self._made["gateway"] = Service("sunk_hook_gateway", common | gateway, self._folder)
        self._start_scheduler()
        return self

    def replace_scheduler(self, number: int) -> None:
        """End the scheduler by the signal *number*, and start another."""
        self._made["scheduler"].end(number)
        self._start_scheduler()

    def _start_scheduler(self) -> None:
        settings = {
            "SLURM_URL": self._slurm.url,
            "SLURM_KEY_FILE": str(self._slurm.jwt_key),
            "KEY_FILE": str(self._folder / "key"),
            "HOOKS_URL": f"http://127.0.0.1:{self._port}",
            "HTTP_PORT": str(self._scheduler_port),
        }
        common = self._common | self._kube
        self._made["scheduler"] = Service("sunk_pod_scheduler", common | settings, self._folder)

    def __exit__(self, *_: object) -> None:
        """End them."""
        for service in self._made.values():
            service.end()
        self._syncer.close()


def _pids(lab: KubeLab, slurm: HostSlurm, nats: NatsServer) -> dict[str, int]:
    """Return the processes of the servers, and our own."""
    known = {process.name.removeprefix("kube-"): process.pid for process in lab.status()}
    names = ("slurmctld", "slurmrestd")
    found = {"nats": nats.pid, "kube_scheduler": known.get("scheduler")}
    found |= {name: known.get(name) for name in ("apiserver", "etcd")}
    found |= {name: slurm.pid_of(name) for name in names} | {"bench": os.getpid()}
    return {name: pid for name, pid in found.items() if pid is not None}


async def _furnish(lab: KubeLab, kube: KubeClient, sizes: Sizes) -> None:
    await kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"

    async def is_furnished() -> bool:
        return b'"default"' in await kube.get_raw(accounts)

    await until(is_furnished, within_s=WITHIN_S)
    for process in lab.status():
        # It would call Nodes without a kubelet dead, and take their Pods away.
        if process.name == "kube-controller-manager" and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
    await each(range(1, sizes.nodes + 1), lambda number: register(kube, number))


async def _name_nodes(bus: Bus, slurm: HostSlurm) -> None:
    """Say on the bus, as a NodeSet's controller would, which Node each Slurm node is."""
    view = StateView(bus, CLUSTER, KubePodState)
    async with following(view):
        await view.complete()
        writer = StateWriter(bus, view, fence=None)
        for number, name in enumerate(slurm.node_names, start=1):
            state = KubePodState(
                changed=datetime.now(UTC),
                pod=name,
                namespace=NAMESPACE,
                nodeset="bench",
                kube_node=f"bench{number:05}",
                uid=f"uid-{name}",
                phase="running",
                is_ready=True,
            )
            await writer.record(name, state, revision=0)
