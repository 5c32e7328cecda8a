"""Slurm's partitions, reservations and scheduler statistics to the bus, at their own pace.

With them goes how old everything else is: a state does not change by being looked at again.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Generic, TypeVar

from msgspec.structs import replace

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.nodes import SlurmPartitionState, SlurmReservationState, SlurmStatisticsState
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError
from sunk_runtime.writer import StateWriter
from sunk_syncer.adapters.ports import Answered, SlurmStatistics
from sunk_syncer.config import Config
from sunk_syncer.metrics import ANSWERED, DOUBTED
from sunk_syncer.pollers.poll_loop import Poller, PollSchedule
from sunk_syncer.states.statistics import (
    of_earlier_leader,
    partition_state,
    reservation_state,
    statistics_state,
)

log = logging.getLogger(__name__)

S = TypeVar("S", bound=State)


class StatisticsPoller:
    """Follows partitions, reservations and statistics of one cluster. Only the leader runs it."""

    def __init__(
        self,
        slurm: SlurmStatistics,
        partitions: StateWriter[SlurmPartitionState],
        reservations: StateWriter[SlurmReservationState],
        statistics: StateWriter[SlurmStatisticsState],
        config: Config,
        *,
        nodes: Answered,
        jobs: Answered,
        reconfigured: Callable[[], str],
    ) -> None:
        self._slurm = slurm
        self._nodes = nodes
        self._jobs = jobs
        self._reconfigured = reconfigured
        self._answered: datetime | None = None
        self._partitions = Table(partitions)
        self._reservations = Table(reservations)
        self._statistics = statistics
        self._poller = Poller("statistics", self.poll, PollSchedule.of(config, config.statistics_s))

    async def run(self) -> None:
        """Show when Slurm answered earlier leaders, and poll until cancelled."""
        self._show_answered()
        await self._poller.run()

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._poller.wake()

    def _show_answered(self) -> None:
        """Show how old what the bus has is: a leader that Slurm has not answered yet would show nothing."""
        if self._earlier is None:
            return
        dated = self._dated(self._earlier)
        answered = {
            "nodes": dated.nodes_answered,
            "jobs": dated.jobs_answered,
            "partitions": dated.partitions_answered,
            "statistics": dated.changed,
        }
        for kind, moment in answered.items():
            if moment is not None:
                ANSWERED.labels(kind).set(moment.timestamp())

    async def poll(self) -> bool:
        """Ask once for each, and tell the bus; what is not answered keeps nothing else from being told."""
        moment = now()
        failed: SunkError | None = None
        try:
            await self._publish_lists(moment)
        except SunkError as error:
            failed = error
        try:
            seen = statistics_state(await self._slurm.diag(), moment)
            ANSWERED.labels("statistics").set_to_current_time()
        except SunkError as error:
            seen, failed = self._statistics.view.get(subjects.STATISTICS_KEY), error
        if seen is not None:
            revision = self._statistics.view.revision(subjects.STATISTICS_KEY)
            await self._statistics.record(subjects.STATISTICS_KEY, self._dated(seen), revision=revision)
        if failed is not None:
            raise failed
        return True

    async def _publish_lists(self, moment: datetime) -> None:
        partitions = await self._slurm.partitions()
        reservations = await self._slurm.reservations()
        if partitions:
            await self._partitions.publish({seen.name: partition_state(seen, moment) for seen in partitions})
            await self._reservations.publish(
                {seen.name: reservation_state(seen, moment) for seen in reservations}
            )
            self._answered = moment
            ANSWERED.labels("partitions").set_to_current_time()
        else:  # There is no Slurm without a partition: this one has lost its configuration, or is another.
            DOUBTED.labels("partitions").inc()
            log.warning("answer not plausible", extra={"known": len(self._partitions), "missing": "all"})

    @cached_property
    def _earlier(self) -> SlurmStatisticsState | None:
        """What an earlier leader told last. It is read before we tell anything."""
        entry = self._statistics.view.entry(subjects.STATISTICS_KEY)
        return None if entry is None else of_earlier_leader(entry.value, entry.stored)

    def _dated(self, state: SlurmStatisticsState) -> SlurmStatisticsState:
        """Return *state* with what we did and when Slurm was heard of what; an earlier leader may know."""
        before = self._earlier
        return replace(
            state,
            nodes_answered=self._nodes.answered or (before and before.nodes_answered),
            jobs_answered=self._jobs.answered or (before and before.jobs_answered),
            partitions_answered=self._answered or (before and before.partitions_answered),
            reconfigured=self._reconfigured(),
        )


class Table(Generic[S]):
    """A short list of Slurm's, told as a whole: what two answers in a row lacked is gone."""

    def __init__(self, writer: StateWriter[S]) -> None:
        self._writer = writer
        self._missing: set[str] = set()

    def __len__(self) -> int:
        return len(self._writer.view)

    async def publish(self, seen: Mapping[str, S]) -> None:
        """Tell the bus each, and what is gone."""
        view = self._writer.view
        for name, state in seen.items():
            if name:
                await self._writer.record(name, state, revision=view.revision(name))
        missing = set(view.keys()) - seen.keys()
        for name in missing & self._missing:
            await self._writer.forget(name, revision=view.revision(name))
        self._missing = missing
