"""The services, each as a process of a simulation runs it: its own start, below its own signals."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import sunk_metrics_exporter.main
import sunk_nodeset_controller.main
import sunk_syncer.main
from sunk_runtime.lifecycle import stoppable
from sunk_simulation import pace
from sunk_simulation.loop import Main
from sunk_simulation.simulation import Kept, Simulation

TOKEN: Final = Path(__file__).with_name("token")
"""A token for slurmrestd; the models believe any."""
_STARTS: Final[Mapping[str, Callable[[], Awaitable[None]]]] = {
    "metrics-exporter": sunk_metrics_exporter.main.work,
    "nodeset-controller": sunk_nodeset_controller.main.start,
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
