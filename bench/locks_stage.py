"""What locks are measured on: an API server full of Nodes and Pods, the gateway and the lock manager."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
from figures import require
from waiting import until

from sunk_events.nodesets import KubePodState
from sunk_hook_gateway.testing.hooks import CLUSTER, bearer, register, store
from sunk_hook_gateway.testing.issuer import ISSUER, Issuer
from sunk_hook_gateway.testing.process import Process
from sunk_kube.client import KubeClient, connect
from sunk_kube.errors import KubeRejectedError
from sunk_kube.reflector import Reflector
from sunk_kube.resources import NAMESPACES, NODES, PODS
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.lock_controller.controller import run_locks
from sunk_nodeset_controller.locks.model import LockTaint, Rules
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_runtime.jetstream import Bus, BusSettings
from sunk_runtime.jetstream import connect as connect_bus
from sunk_runtime.leases import Leadership
from sunk_runtime.views import following

NAMESPACE: Final = "bench-locks"
WITHIN_S: Final = 900.0
AT_ONCE: Final = 32
TAINT: Final = LockTaint()
OK: Final = 200
AGAIN: Final = frozenset({202, 503})
SHORT_HOLD_S: Final = 15.0
LONG_HOLD_S: Final = 60.0
LONG_FROM_S: Final = 15.0
"""For how long prolog.sh has its calls held, short ones first."""


class Sizes(argparse.Namespace):
    """How much is measured."""

    nodes: int
    pods: int
    rounds: int
    seconds: float
    manage: str
    kubeconfig: str


@dataclass
class Stage:
    """What is measured, and with what."""

    sizes: Sizes
    kube: KubeClient
    http: aiohttp.ClientSession
    """To the gateway, a connection for each call, as each prolog has its own."""
    tokens: dict[str, str]
    gateway: int
    manager: int
    real: str
    """The Node with a kubelet."""
    servers: Mapping[str, int]
    """The processes of everybody else, and our own."""

    @property
    def nodes(self) -> list[str]:
        """The Nodes that are records, each also the name of its Slurm node."""
        return [name_of(number) for number in range(self.sizes.nodes)]

    async def prehook(self, node: str, job: int, *, deadline_s: float = 300.0) -> int:
        """Call as a prolog does, again while nothing is decided, and return the status."""
        headers, began, waited_s = bearer(self.tokens[node]), time.monotonic(), 0.0
        while True:
            left_s = max(1.0, deadline_s - (time.monotonic() - began))
            hold_s = SHORT_HOLD_S if waited_s < LONG_FROM_S else LONG_HOLD_S
            body = {"job": job, "deadline_s": left_s, "hold_s": hold_s, "waited_s": waited_s}
            with suppress(aiohttp.ClientError):  # Of a thousand that connect at once some are too slow.
                status = await self._post(f"/v1/nodes/{node}/prehook", body, headers)
                if status not in AGAIN:
                    return status
            waited_s = time.monotonic() - began

    async def _post(self, path: str, body: Mapping[str, float], headers: Mapping[str, str]) -> int:
        async with self.http.post(path, json=body, headers=headers) as answer:
            return answer.status

    async def locked(self, node: str, job: int) -> None:
        """Return when the node is locked for the job."""
        status = await self.prehook(node, job)
        require(holds=status == OK, claim=f"{node} is locked in time: HTTP {status}")

    async def released(self, node: str, job: int) -> None:
        """Call as an epilog does, and return when nobody holds the node any more."""
        path, headers = f"/v1/nodes/{node}/release", bearer(self.tokens[node])

        async def is_released() -> bool:
            return await self._post(path, {"job": job}, headers) == OK

        await until(is_released, within_s=WITHIN_S)

        async def is_free() -> bool:
            taints = (await self.kube.get(NODES, node)).spec.taints
            return all(taint.key != TAINT.key for taint in taints)

        await until(is_free, within_s=WITHIN_S)


def name_of(number: int) -> str:
    """Return the name of a Node that is a record."""
    return f"bench-{number:05d}"


async def in_parallel(deeds: Iterable[Callable[[], Awaitable[object]]], at_once: int = AT_ONCE) -> None:
    """Do *deeds*, so many at once."""
    left = iter(deeds)

    async def work() -> None:
        for deed in left:
            await deed()

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work)


def pod(name: str, node: str, *, stays: bool) -> dict[str, Any]:
    """Return a Pod on *node*, which *stays* when the Node is locked or has to leave."""
    container = {"name": "main", "image": "localhost/sunk-pause:1"}
    spec = {
        "nodeName": node,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "tolerations": [{"operator": "Exists"}] if stays else [],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def made(kube: KubeClient, body: dict[str, Any]) -> None:
    """Make a Pod, as soon as its namespace is ready for one."""
    while True:
        try:
            await kube.create(PODS, body, NAMESPACE)
        except KubeRejectedError as error:
            if error.status != 403:  # noqa: PLR2004 - HTTP's word; its ServiceAccount is not made yet.
                raise
            await anyio.sleep(0.2)
        else:
            return


async def filled(kube: KubeClient, sizes: Sizes) -> None:
    """Make the Nodes and their Pods."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await kube.create(NAMESPACES, body)
    names = [name_of(number) for number in range(sizes.nodes)]

    def node(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}

    await in_parallel(lambda name=name: kube.create(NODES, node(name)) for name in names)
    await in_parallel(
        lambda number=number: made(kube, pod(f"p{number}", names[number % len(names)], stays=True))
        for number in range(sizes.pods)
    )


async def told(bus: Bus, node: str) -> None:
    """Say of *node* what its owners would."""
    state = KubePodState(
        changed=datetime.now(UTC),
        pod=node,
        namespace="slurm",
        nodeset="bench",
        kube_node=node,
        phase="running",
    )
    await register(bus, node)
    await store(bus, node, state)


async def manage(sizes: Sizes) -> None:
    """Be the lock manager, until killed."""
    leadership = Leadership("bench", 1, float("inf"))
    async with (
        connect("bench-locks", kubeconfig=Path(sizes.kubeconfig)) as kube,
        connect_bus(BusSettings(url=sizes.manage), "bench-locks") as bus,
    ):
        views, nodes = ClusterViews.of(bus, CLUSTER), Reflector(kube, NODES)
        locks = partial(
            run_locks, views, kube, leadership, measure=EvictionPolicy(TAINT), viewed=nodes.objects
        )
        read = (views.slurm_nodes, views.slurm_jobs, views.placements, views.kube_pods, views.locks)
        async with following(*read), anyio.create_task_group() as tasks:
            tasks.start_soon(nodes.run)
            await nodes.complete()
            await locks(rules=Rules(linger_s=0.2))


@contextmanager
def managing(folder: Path, nats_url: str, kubeconfig: Path) -> Generator[int]:
    """Run the lock manager while the context lasts, and yield its process id."""
    program = Path(__file__).with_name("locks.py")
    command = [sys.executable, str(program), "--manage", nats_url, "--kubeconfig", str(kubeconfig)]
    with (folder / "manager.log").open("wb") as log, subprocess.Popen(command, stderr=log) as manager:
        try:
            yield manager.pid
        finally:
            manager.kill()


@asynccontextmanager
async def staged(sizes: Sizes, folder: Path, lab: KubeLab) -> AsyncGenerator[Stage]:
    """Start NATS, the gateway and the lock manager, and fill the API server."""
    kubeconfig = lab.kubeconfig
    issuer = Issuer()
    keys = folder / "jwks.json"
    keys.write_bytes(issuer.jwks())
    with NatsServer(folder / "nats") as nats:
        settings = BusSettings(url=nats.url)
        async with (
            connect("bench", kubeconfig=kubeconfig) as kube,
            connect_bus(settings, "bench") as bus,
        ):
            await bus.provision(CLUSTER, settings)
            real = min(node.metadata.name for node in await kube.list_all(NODES))
            names = [real, *(name_of(number) for number in range(sizes.nodes))]
            await filled(kube, sizes)
            for name in names:
                await told(bus, name)
            port = 18700 + os.getpid() % 1000
            gateway = Process(
                folder,
                {
                    "CLUSTER": CLUSTER,
                    "NATS_URL": nats.url,
                    "HTTP_PORT": str(port),
                    "TOKEN_KEYS_FILE": str(keys),
                    "TOKEN_ISSUER": ISSUER,
                    "MAX_CONNECTIONS_PER_ADDRESS": "30000",  # Every node calls from this machine.
                },
            )
            known = {"bench": os.getpid(), "nats": nats.pid} | {one.name: one.pid for one in lab.status()}
            servers = {name.removeprefix("kube-"): pid for name, pid in known.items() if pid is not None}
            try:
                with managing(folder, nats.url, kubeconfig) as manager:
                    async with aiohttp.ClientSession(
                        f"http://127.0.0.1:{port}",
                        connector=aiohttp.TCPConnector(limit=0, force_close=True),
                        timeout=aiohttp.ClientTimeout(total=WITHIN_S),
                    ) as http:
                        tokens = {name: issuer.token(name, exp=int(time.time()) + 7200) for name in names}
                        await until(lambda: is_ready(http), within_s=WITHIN_S)
                        yield Stage(sizes, kube, http, tokens, gateway.pid, manager, real, servers)
            finally:
                gateway.close()


async def is_ready(http: aiohttp.ClientSession) -> bool:
    """Whether the gateway is ready."""
    try:
        async with http.get("/readyz") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False
