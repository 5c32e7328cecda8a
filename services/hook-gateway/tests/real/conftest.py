"""The scripts of a real slurmd, with a gateway that answers what a test tells it to."""

from collections.abc import Generator

import pytest

from sunk_hook_gateway.testing.cluster import Cluster
from sunk_hook_gateway.testing.scripted import ScriptedGateway, scripted_gateway
from sunk_lab.slurm.host import HostSlurm


@pytest.fixture
def gateway() -> Generator[ScriptedGateway]:
    with scripted_gateway() as gateway:
        yield gateway


@pytest.fixture
def cluster(slurm: HostSlurm, gateway: ScriptedGateway) -> Generator[Cluster]:
    cluster = Cluster(slurm, gateway.url)
    yield cluster
    gateway.accept_all()
    cluster.tidy()
