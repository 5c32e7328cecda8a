"""Slurm's partitions and scheduler statistics to the bus, at their own pace."""

import logging

from sunk_events import subjects
from sunk_events.nodes import SlurmPartitionState, SlurmStatisticsState
from sunk_runtime.views import now
from sunk_runtime.writer import StateWriter
from sunk_syncer.config import Config
from sunk_syncer.metrics import DOUBTED
from sunk_syncer.polling import Poller
from sunk_syncer.ports import SlurmStatistics
from sunk_syncer.statistics import partition_state, statistics_state

log = logging.getLogger(__name__)


class StatisticsWatch:
    """Follows partitions and statistics of one cluster. Only the leader runs it."""

    def __init__(
        self,
        slurm: SlurmStatistics,
        partitions: StateWriter[SlurmPartitionState],
        statistics: StateWriter[SlurmStatisticsState],
        config: Config,
    ) -> None:
        self._slurm = slurm
        self._partitions = partitions
        self._statistics = statistics
        self._config = config
        self._missing: set[str] = set()

    async def run(self) -> None:
        """Poll until cancelled."""
        poller = Poller("statistics", self.poll, poll_s=self._config.statistics_s, config=self._config)
        await poller.run()

    async def poll(self) -> bool:
        """Ask once for each, and tell the bus."""
        await self._poll_partitions()
        state = statistics_state(await self._slurm.diag(), now())
        revision = self._statistics.view.revision(subjects.STATISTICS_KEY)
        await self._statistics.record(subjects.STATISTICS_KEY, state, revision=revision)
        return True

    async def _poll_partitions(self) -> None:
        """Tell the bus each partition; one that two answers in a row lacked is gone, unless all are."""
        view = self._partitions.view
        seen = await self._slurm.partitions()
        for partition in seen:
            state = partition_state(partition, now())
            await self._partitions.record(partition.name, state, revision=view.revision(partition.name))
        missing = set(view.keys()) - {partition.name for partition in seen}
        if missing and not seen:
            DOUBTED.labels("partitions").inc()
            log.warning("answer not believed", extra={"known": len(view), "missing": len(missing)})
            return
        for name in missing & self._missing:
            await self._partitions.forget(name, revision=view.revision(name))
        self._missing = missing
