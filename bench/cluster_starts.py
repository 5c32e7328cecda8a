"""How long a service takes to start, as the containers of an installed cluster do.

Its process is ended, its kubelet starts the container again, at once as it is the Pod's first time. The clock
begins with the new process, which the kernel knows to 10 ms; what a kubelet takes before that is not the
image's doing.
"""

import http.client
import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from figures import TICKS, cpu_s_of

from sunk_lab.installation import Installation
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import start_time, wait_for
from sunk_lab.service_images import PLACE, SERVICES, tag

PORT: Final = 8080
OK: Final = 200
BACK_S: Final = 120.0
_PAUSE_S: Final = 0.01
_CALL_S: Final = 2.0
_IMPORTS: Final = "import time; t = time.perf_counter(); import {}.main; print(time.perf_counter() - t)"


@dataclass(frozen=True)
class Running:
    """A container of a service."""

    namespace: str
    pod: str
    uid: str
    container: str
    ip: str

    def process(self) -> int | None:
        """Return its process; None while it has none. Nodes are of this machine."""
        program = f"python3\0/{PLACE}\0".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_its = (folder / "cmdline").read_bytes().startswith(program)
                if is_its and self.uid in (folder / "cgroup").read_text():
                    return int(folder.name)
            except OSError:  # It is gone meanwhile.
                continue
        return None

    def answers(self, path: str) -> float | None:
        """Return the time since the machine's start at which it answered *path* well; None if it did not."""
        connection = http.client.HTTPConnection(self.ip, PORT, timeout=_CALL_S)
        try:
            connection.request("GET", path)
            is_well = connection.getresponse().status == OK
            return time.clock_gettime(time.CLOCK_BOOTTIME) if is_well else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


@dataclass(frozen=True)
class Start:
    """One start, in seconds since the process began."""

    http_s: float
    ready_s: float
    cpu_s: float
    """Processor time of the process until it was ready."""
    imports_s: float
    """The share of Python's imports, in another process of the same container."""


def running(lab: KubeLab, service: str) -> Running | None:
    """Return a container of *service* that is ready; None while there is none."""
    found: dict[str, Any] = json.loads(lab.kubectl("get", "pods", "--all-namespaces", "-o", "json"))
    for pod in found["items"]:
        container = pod["spec"]["containers"][0]
        conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
        is_going = "deletionTimestamp" in pod["metadata"]
        if container["image"] == tag(service) and conditions.get("Ready") == "True" and not is_going:
            return Running(
                namespace=pod["metadata"]["namespace"],
                pod=pod["metadata"]["name"],
                uid=pod["metadata"]["uid"],
                container=container["name"],
                ip=pod["status"]["podIP"],
            )
    return None


def start(lab: KubeLab, service: str) -> Start:
    """End the process of *service* and return how the next one has started; its Pod makes way for another."""
    it = wait_for(f"a container of {service}", lambda: running(lab, service), BACK_S)
    old = wait_for(f"a process of {service}", it.process)
    os.kill(old, signal.SIGTERM)
    wait_for(f"{service} to end", lambda: start_time(old) is None, BACK_S, _PAUSE_S)
    answered = wait_for(f"{service} to answer", lambda: it.answers("/healthz"), BACK_S, _PAUSE_S)
    ready = wait_for(f"{service} to be ready", lambda: it.answers("/readyz"), BACK_S, _PAUSE_S)
    new = wait_for(f"the new process of {service}", it.process)
    cpu_s, began = cpu_s_of(new), int(start_time(new) or 0) / TICKS
    code = _IMPORTS.format(f"sunk_{service.replace('-', '_')}")
    where = ("-n", it.namespace, "exec", it.pod, "-c", it.container)
    imports_s = float(lab.kubectl(*where, "--", "python3", "-c", code))
    lab.kubectl("-n", it.namespace, "delete", "pod", it.pod)
    return Start(http_s=answered - began, ready_s=ready - began, cpu_s=cpu_s, imports_s=imports_s)


def starts(made: Installation, rounds: int, emit: Callable[..., None]) -> None:
    """Emit ``images.start`` of each service: medians of *rounds*, and the slowest ``ready_max_s``."""
    took: dict[str, list[Start]] = {service: [] for service in SERVICES}
    for _ in range(rounds):
        for service in SERVICES:
            took[service].append(start(made.lab, service))
    for service, each in took.items():
        medians = {
            name: round(statistics.median(getattr(one, name) for one in each), 2)
            for name in ("http_s", "ready_s", "cpu_s", "imports_s")
        }
        slowest = round(max(one.ready_s for one in each), 2)
        emit("images.start", service=service, rounds=rounds, **medians, ready_max_s=slowest)
