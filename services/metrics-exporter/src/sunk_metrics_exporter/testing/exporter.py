"""An exporter as its own process, and scrapes without one."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from sunk_events import subjects
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.slurm_metrics.exposition import Exposition, Slurm
from sunk_runtime.testing import WITHIN_S

SlurmState = SlurmNodeState | SlurmJobState | SlurmPartitionState | SlurmStatisticsState
Samples = dict[str, dict[tuple[str, ...], float]]
"""By metric and the values of its labels."""


def slurm(*states: SlurmState) -> Slurm:
    """Return what the bus knows where it holds *states*."""
    statistics = [state for state in states if isinstance(state, SlurmStatisticsState)]
    return Slurm(
        nodes={state.node: state for state in states if isinstance(state, SlurmNodeState)},
        jobs={str(state.job): state for state in states if isinstance(state, SlurmJobState)},
        partitions={state.partition: state for state in states if isinstance(state, SlurmPartitionState)},
        statistics={subjects.STATISTICS_KEY: statistics[-1]} if statistics else {},
    )


def scraped(exposition: Exposition, moment: datetime) -> Samples:
    """Return what Prometheus reads in a scrape of *exposition*; a sample that is there twice is an error."""
    samples: Samples = {}
    for family in text_string_to_metric_families(exposition.text(moment)):
        for sample in family.samples:
            found = samples.setdefault(sample.name, {})
            labels = tuple(sample.labels.values())
            if labels in found:
                raise ValueError(f"{sample.name}{labels} is there twice")
            found[labels] = sample.value
    return samples


class Process:
    """``python -m sunk_metrics_exporter`` with its log in *folder*."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "exporter.log"
        env = {name: value for name, value in os.environ.items() if not name.startswith("SUNK_")}  # noqa: TID251 - a test's own
        env |= {f"SUNK_METRICS_EXPORTER_{name}": value for name, value in settings.items()}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sunk_metrics_exporter"], stderr=log, env=env
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait(self) -> int:
        """Return the exit code."""
        return self._process.wait(WITHIN_S)

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(WITHIN_S)
