"""The compose file: valid, and a Slurm whose facts are on the bus when podman brings it up."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

import httpx
import pytest

from sunk_lab import nats_image, service_images
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.podman import Podman, check
from sunk_lab.ports import free_ports
from sunk_lab.processes import run, wait_for
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import SLURM_24_11

FOLDER: Final = Path(__file__).parents[2] / "compose"
PROGRAMS: Final = Path(sys.executable).parent
PROJECT: Final = "sunk-compose-test"


class Compose:
    """The compose file with the images that the lab makes, in a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self.podman = Podman(folder)
        self.metrics_port = free_ports(2)
        self._env = self.podman.env | {
            "SUNK_METRICS_PORT": str(self.metrics_port),
            "SUNK_NATS_PORT": str(self.metrics_port + 1),
            "SUNK_NATS_IMAGE": nats_image.tag(),
            "SUNK_SLURM_IMAGE": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{SLURM_24_11.version}",
            "SUNK_SYNCER_IMAGE": service_images.tag("syncer"),
            "SUNK_METRICS_EXPORTER_IMAGE": service_images.tag("metrics-exporter"),
        }

    def say(self, *args: str) -> str:
        """Run podman-compose."""
        program = (PROGRAMS / "podman-compose", "--project-name", PROJECT, "--file", FOLDER / "compose.yaml")
        return run(*program, *args, env=self._env, timeout_s=240)

    def slurm(self, *args: str) -> str:
        """Run a command on a node."""
        return self.podman("exec", f"{PROJECT}_node1_1", *args)

    def metrics(self) -> str:
        """Return what the metrics-exporter tells; nothing while it does not."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).text
        except httpx.TransportError:
            return ""


@pytest.fixture
def compose(tmp_path: Path) -> Generator[Compose]:
    try:
        check()
    except LabError as error:
        pytest.skip(str(error))
    cache = from_environment().cache

    def say(_line: str) -> None: ...

    archives = (
        nats_image.archive_of(cache),
        service_images.archive_of(list(service_images.SERVICES), cache, say),
        cluster_images.slurm_image_of(SLURM_24_11, cache, say),
    )
    made = Compose(tmp_path)
    made.podman.load(*archives)
    try:
        yield made
    finally:
        made.say("down", "--volumes", "--timeout", "1")
        made.podman.clear()


def test_the_compose_file_is_one_by_the_specifications_own_schema() -> None:
    argv = [
        PROGRAMS / "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        FOLDER / "compose.yaml",
    ]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.engine
@pytest.mark.install
@pytest.mark.timeout(900)  # The images are made from the code as it is now.
def test_podman_brings_up_a_slurm_whose_facts_are_on_the_bus(compose: Compose) -> None:
    compose.say("up", "--no-build", "--detach")

    def idle() -> bool:
        try:
            return compose.slurm("sinfo", "-hN", "-t", "idle", "-o", "%N").split() == ["node1", "node2"]
        except LabError:
            return False  # slurmctld is not up yet.

    wait_for("two idle nodes", idle, 120)
    assert sorted(compose.slurm("srun", "-N2", "hostname").split()) == ["node1", "node2"]
    wait_for("both nodes among the metrics", lambda: 'node="node2"' in compose.metrics(), 60)
