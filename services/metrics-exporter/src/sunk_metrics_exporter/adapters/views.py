"""Every view of the exporter."""

from datetime import datetime
from typing import Any

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_metrics_exporter.slurm_metrics.exposition import Slurm
from sunk_metrics_exporter.sunk_metrics.current import Current, look
from sunk_runtime.jetstream import Bus
from sunk_runtime.views import S, StateView


class Views:
    """What the bus holds of one Slurm cluster."""

    def __init__(self, bus: Bus, cluster: str) -> None:
        self.nodes = StateView(bus, cluster, SlurmNodeState)
        self.jobs = StateView(bus, cluster, SlurmJobState)
        self.partitions = StateView(bus, cluster, SlurmPartitionState)
        self.statistics = StateView(bus, cluster, SlurmStatisticsState)
        self.locks = StateView(bus, cluster, LockState)
        self.placements = StateView(bus, cluster, PlacementState)
        self.pods = StateView(bus, cluster, KubePodState)

    def all(self) -> tuple[StateView[Any], ...]:
        """Return them all."""
        slurm = self.nodes, self.jobs, self.partitions, self.statistics
        return *slurm, self.locks, self.placements, self.pods

    def slurm(self) -> Slurm:
        """Return what they know of Slurm."""
        return Slurm(
            _by_key(self.nodes), _by_key(self.jobs), _by_key(self.partitions), _by_key(self.statistics)
        )

    def current(self, slurm: Slurm, moment: datetime) -> Current:
        """Return what is now, beside the documents' table."""
        others = self.locks.values(), self.placements.values(), self.pods.values()
        return look(slurm.nodes.values(), *others, moment)


def _by_key(view: StateView[S]) -> dict[str, S]:
    return dict(zip(view.keys(), view.values(), strict=True))
