"""The lab's NATS in a container, by testcontainers: Docker where there is one, else podman's socket.

The image is written here, nothing is pulled. testcontainers' own
reaper is an image that would be pulled, so containers are removed by `EngineNats.stop`.

Source: podman-system-service(1), containers.conf(5); testcontainers-python 4.15, tried with podman 4.3.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import DockerException
from docker.utils import kwargs_from_env
from testcontainers.core.config import ConnectionMode, testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from sunk_lab import nats_image
from sunk_lab.debian import need_root
from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import Report, require
from sunk_lab.processes import PATIENCE_S, Processes, wait_for

_DOCKER_SOCKET: Final = Path("/var/run/docker.sock")
_PODMAN: Final = "podman"
_PACKAGES: Final = {
    "usr/bin/podman": "podman",
    "usr/sbin/runc|usr/bin/runc": "runc",
    "usr/lib/podman/netavark": "netavark",
    "usr/lib/podman/aardvark-dns": "aardvark-dns",
}
# crun refuses a machine that mixes cgroup v1 and v2; without CAP_SYS_RESOURCE no limit may be raised.
CONTAINERS_CONF: Final = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
"""
"""What podman is told on such machines."""


class EngineNats:
    """A nats-server in a container; its store goes with it."""

    def __init__(self, folder: Path, *, cache: Path, report: Report) -> None:
        """Describe it; `start` starts it.

        Args:
            folder: For the engine's own files, if we must start one.
            cache: Where the image is kept.
            report: Called with each step that takes long.
        """
        self._folder, self._cache, self._report = folder.absolute(), cache, report
        self._processes: Final = Processes(self._folder)
        self._socket_folder: Path | None = None
        self._container: DockerContainer | None = None

    @property
    def url(self) -> str:
        """Return where clients connect."""
        if self._container is None:
            raise LabError("the NATS container does not run: start it first")
        return f"nats://127.0.0.1:{self._container.get_exposed_port(nats_image.PORT)}"

    def start(self) -> None:
        """Start it; it running is success.

        Raises:
            LabError: No engine is here and podman cannot be installed or does not start.
        """
        if self._container is not None:
            return
        surroundings: dict[str, Any] = {}
        if not _is_docker_here():
            surroundings = {"environment": {"DOCKER_HOST": self._start_podman()}}
        testcontainers_config.ryuk_disabled = True
        testcontainers_config.connection_mode_override = ConnectionMode.docker_host
        testcontainers_config.tc_host_override = "127.0.0.1"
        try:
            _load(nats_image.archive_of(self._cache), surroundings)
            container = DockerContainer(nats_image.tag(), docker_client_kw=surroundings)
            container.with_exposed_ports(nats_image.PORT)
            container.waiting_for(
                LogMessageWaitStrategy("Server is ready").with_startup_timeout(int(PATIENCE_S))
            )
            self._container = container
            container.start()
        except DockerException as error:
            self.stop()
            raise LabError(f"the container engine refused to run NATS: {error}") from error

    def stop(self) -> None:
        """Remove the container, and the engine if we started it."""
        if self._container is not None:
            self._container.stop()
            self._container.get_docker_client().client.close()
            self._container = None
        self._processes.kill(_PODMAN)
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None

    def _start_podman(self) -> str:
        require(_PACKAGES, report=self._report)
        need_root("podman as the lab uses it")
        self._folder.mkdir(parents=True, exist_ok=True)
        configuration = self._folder / "containers.conf"
        configuration.write_text(CONTAINERS_CONF)
        self._socket_folder = Path(
            tempfile.mkdtemp(prefix="sunk-lab-")
        )  # A socket's path may have 107 characters.
        socket = self._socket_folder / "podman.sock"
        self._processes.spawn(
            _PODMAN,
            ["podman", "system", "service", "-t", "0", f"unix://{socket}"],
            env={"CONTAINERS_CONF": str(configuration)},
        )

        def is_up() -> bool:
            self._processes.require(_PODMAN)
            return socket.exists()

        wait_for(f"podman, see {self._processes.log_of(_PODMAN)}", is_up, pause_s=0.02)
        return f"unix://{socket}"


def _is_docker_here() -> bool:
    """Say whether ``DOCKER_HOST`` names an engine or Docker's own socket is there."""
    return "base_url" in kwargs_from_env() or _DOCKER_SOCKET.is_socket()


def _load(archive: Path, surroundings: dict[str, Any]) -> None:  # As docker.from_env takes it.
    client = docker.from_env(**surroundings)
    try:
        with archive.open("rb") as content:
            client.images.load(content)
    finally:
        client.close()
