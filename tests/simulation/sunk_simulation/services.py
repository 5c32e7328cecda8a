"""The services, each as a process of a simulation runs it: its own start, below its own signals."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import sunk_hook_gateway.main
import sunk_metrics_exporter.main
import sunk_nodeset_controller.main
import sunk_pod_scheduler.config
import sunk_pod_scheduler.main
import sunk_syncer.main
from sunk_runtime.lifecycle import stoppable
from sunk_simulation import pace
from sunk_simulation.loop import Main
from sunk_simulation.simulation import Kept, Simulation

TOKEN: Final = Path(__file__).with_name("token")
"""A token for slurmrestd, whose model believes any; also that of hooks, and the key of placeholders."""


def _pod_scheduler() -> Awaitable[None]:
    return sunk_pod_scheduler.main.serve(sunk_pod_scheduler.config.read_config(sys.argv[1:]))


_STARTS: Final[Mapping[str, Callable[[], Awaitable[None]]]] = {
    "hook-gateway": sunk_hook_gateway.main.work,
    "metrics-exporter": sunk_metrics_exporter.main.work,
    "nodeset-controller": sunk_nodeset_controller.main.start,
    "pod-scheduler": _pod_scheduler,
    "syncer": sunk_syncer.main.start,
}


def keep(
    sim: Simulation, service: str, replica: int, settings: Mapping[str, str], *, restart_s: float = 2.0
) -> Kept:
    """Run a replica of *service* as a Deployment does, with these settings of its own."""
    prefix = f"SUNK_{service.replace('-', '_').upper()}_"
    env = {prefix + name.upper(): value for name, value in {**pace.settings(service), **settings}.items()}
    return sim.keep(f"{service}-{replica}", main_of(service), restart_s=restart_s, env=env)


def main_of(service: str) -> Main:
    """Return what a process of *service* runs."""
    return partial(stoppable, _STARTS[service])
