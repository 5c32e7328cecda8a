"""One nats-server and one gateway process a module; each test takes names of its own."""

import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import httpx
import pytest

from sunk_hook_gateway.testing.cluster import HOOKS
from sunk_hook_gateway.testing.hooks import CLUSTER
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_hook_gateway.testing.process import Process, settings_of
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import WITHIN_S


@pytest.fixture(scope="module")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server.url


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def keys_file(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_bytes(issuer.jwks())
    return path


StartGateway = Callable[..., tuple[Process, str]]
"""Takes further settings, by the name of their variable without its prefix."""


@pytest.fixture(scope="module")
def start_gateway(
    nats_url: str, keys_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[StartGateway]:
    started: list[Process] = []

    def start(**more: str) -> tuple[Process, str]:
        port = free_port()
        settings = settings_of(CLUSTER, nats_url, port, keys_file)
        process = Process(tmp_path_factory.mktemp("gateway"), settings | more)
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        _await_ready(url, process)
        return process, url

    try:
        yield start
    finally:
        for process in started:
            process.close()


def _await_ready(url: str, process: Process) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/readyz", trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"gateway is not ready: {process.log.read_text()}")


@pytest.fixture(scope="module")
def gateway(start_gateway: StartGateway) -> tuple[Process, str]:
    return start_gateway()


@pytest.fixture
async def bus(nats_url: str) -> AsyncGenerator[Bus]:
    settings = BusSettings(url=nats_url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        yield bus


@pytest.fixture
async def http(gateway: tuple[Process, str]) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway[1], trust_env=False, timeout=120) as client:
        yield client


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    release: Release = request.param
    with running_slurm(release, nodes=3, more=HOOKS) as slurm:
        yield slurm
