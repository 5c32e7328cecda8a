"""Heterogeneous jobs on a real Slurm, with a real gateway; who locks is stood in for."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import anyio.to_thread
import httpx
import pytest

from sunk_events.base import Reply
from sunk_events.locks import LockHolder, LockState
from sunk_events.requests import AcquireLock, LockGranted, LockWaiting, Noted, ReleaseLock
from sunk_hook_gateway.testing.cluster import Cluster, until
from sunk_hook_gateway.testing.hooks import CLUSTER, register, store
from sunk_hook_gateway.testing.process import Process, settings_of
from sunk_lab.ports import free_port
from sunk_lab.slurm.host import HostSlurm
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import answering
from sunk_runtime.testing import until as until_async

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


@pytest.fixture(scope="module")
def url(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder, port = tmp_path_factory.mktemp("gateway"), free_port()
    (folder / "token").write_text("node-token\n")
    settings = settings_of(CLUSTER, nats_url, port, folder / "no-keys")
    del settings["TOKEN_KEYS_FILE"], settings["TOKEN_ISSUER"]
    process = Process(folder, settings | {"STATIC_TOKEN_FILE": str(folder / "token")})
    try:
        until(lambda: _is_ready(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.close()


@pytest.fixture
def cluster(slurm: HostSlurm, url: str) -> Cluster:
    return Cluster(slurm, url)


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).is_success
    except httpx.TransportError:
        return False


class Manager:
    """Locks the nodes that are clear, and tells the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.clear: set[str] = set()
        self.asked: set[tuple[str, int]] = set()
        self.released: set[tuple[str, int]] = set()

    async def acquire(self, request: AcquireLock) -> Reply:
        self.asked.add((request.node, request.job))
        is_clear = request.node in self.clear
        granted = datetime.now(UTC) if is_clear else None
        state = LockState(
            changed=datetime.now(UTC),
            node=request.node,
            kube_node=request.node,
            lock="locked" if is_clear else "pending",
            holders=(LockHolder(job=request.job, level=request.level, granted=granted),),
        )
        await store(self._bus, request.node, state)
        return LockGranted() if is_clear else LockWaiting(in_the_way=("ns/web",))

    async def release(self, request: ReleaseLock) -> Reply:
        self.released.add((request.node, request.job))
        return Noted()


@asynccontextmanager
async def managing(bus: Bus, cluster: Cluster) -> AsyncGenerator[Manager]:
    manager = Manager(bus)
    for node in cluster.slurm.node_names:
        await register(bus, node)
        # Another Slurm's job may have had the number of ours.
        free = LockState(changed=datetime.now(UTC), node=node, kube_node=node, lock="false")
        await store(bus, node, free)
    async with (
        answering(bus, CLUSTER, AcquireLock, manager.acquire),
        answering(bus, CLUSTER, ReleaseLock, manager.release),
    ):
        try:
            yield manager
        finally:
            manager.clear |= {*cluster.slurm.node_names}
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(cluster.tidy)


async def test_the_script_of_a_heterogeneous_job_starts_when_the_last_component_is_locked(
    bus: Bus, cluster: Cluster
) -> None:
    async with managing(bus, cluster) as manager:
        manager.clear |= {cluster.first, cluster.second}
        job = int(cluster.submit_components(cluster.first, cluster.second, cluster.third))
        places = {(cluster.first, job), (cluster.second, job + 1), (cluster.third, job + 2)}
        await until_async(lambda: manager.asked == places)
        await anyio.sleep(6)  # Longer than the gateway looks at a time.
        assert not cluster.has_run(str(job))

        manager.clear.add(cluster.third)

        await until_async(lambda: cluster.has_run(str(job)))
        await until_async(lambda: manager.released == places)


async def test_a_heterogeneous_job_of_which_one_component_is_refused_never_starts_and_comes_back_whole(
    bus: Bus, cluster: Cluster
) -> None:
    cluster.configure("SUNK_HOOKS_DEADLINE_S=15\n")  # All three prologs have to ask within it.
    async with managing(bus, cluster) as manager:
        manager.clear |= {cluster.first, cluster.second}
        job = int(cluster.submit_components(cluster.first, cluster.second, cluster.third))

        def is_back() -> bool:
            return all(cluster.job(str(one), "JobState") == "PENDING" for one in range(job, job + 3))

        await until_async(lambda: len(manager.asked) == 3)
        await until_async(is_back)
        assert not cluster.has_run(str(job))
        # Whose deadline comes first gives the job back, and the first component's node is none to drain.
        refused = (True, "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)")
        assert cluster.node(cluster.third) in (refused, (False, ""))
        assert [cluster.node(node) for node in (cluster.first, cluster.second)] == [(False, "")] * 2
