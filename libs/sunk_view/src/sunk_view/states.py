"""The states of every Slurm cluster, as the bus has them, and what is answered from them.

What must stay true: nothing is answered from a view that is not complete, or of a bus that is silent. Where
the service that writes a state is silent itself, the answer says so.
"""

import secrets
from datetime import datetime
from typing import Any, Final

from sunk_events import subjects
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import PlacementState
from sunk_events.view import ClusterStatus, ServiceRow
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.views import StateView
from sunk_view import tables
from sunk_view.leaders import KubeLeases, Leaders

SCHEDULER: Final = "pod-scheduler"
WRITERS: Final = ("nodeset-controller", SCHEDULER, "syncer")
"""Services that write what is shown here."""


class ClusterStates:
    """The views of one Slurm cluster."""

    def __init__(
        self,
        bus: Bus,
        cluster: str,
        *,
        silent_s: float,
        row_secret: bytes | None = None,
        leases: KubeLeases | None = None,
    ) -> None:
        self.cluster = cluster
        self.row_secret = row_secret or secrets.token_bytes(32)
        """Makes the keys of rows; of this process only, unless one is given."""
        self._silent_s = silent_s
        self._leaders = Leaders(bus, cluster, leases)
        self.nodes = StateView(bus, cluster, SlurmNodeState)
        self.jobs = StateView(bus, cluster, SlurmJobState)
        self.statistics = StateView(bus, cluster, SlurmStatisticsState)
        self.kube_pods = StateView(bus, cluster, KubePodState)
        self.kube_watch = StateView(bus, cluster, KubeWatchState)
        self.locks = StateView(bus, cluster, LockState)
        self.placements = StateView(bus, cluster, PlacementState)
        self.all: tuple[StateView[Any], ...] = (
            *(self.nodes, self.jobs, self.statistics, self.kube_pods),
            *(self.kube_watch, self.locks, self.placements),
        )

    async def run(self) -> None:
        """Learn who leads each service, until cancelled."""
        await self._leaders.run()

    def require(self, *views: StateView[Any]) -> None:
        """Raise `TransientError` unless *views* are complete and the bus gives signs of life."""
        for view in views:
            view.require_complete()
            if view.age_s > self._silent_s:
                raise TransientError(f"the bus has been silent for {view.age_s:.0f} s, its states may be old")

    def placement(self, namespace: str, name: str, *, is_gang: bool) -> PlacementState | None:
        """Return the newest placement of that name."""
        self.require(self.placements)
        found = [
            one
            for one in self.placements.values()
            if one.namespace == namespace and one.pod == name and (one.roster is not None) == is_gang
        ]
        return max(found, key=lambda one: one.changed, default=None)

    def problems(self, *, is_of_nodes: bool = False) -> tuple[str, ...]:
        """Return which services are silent, and which states cannot be read.

        A silent service has had no leader for long, or has not seen for long what it writes of. The
        pod-scheduler writes nothing of nodes (*is_of_nodes*).
        """
        self.require(self.kube_watch, self.statistics)
        missing, lags = self._leaders.missing(now()), self._lags()
        silent = {
            service: " and ".join(filter(None, (missing.get(service), lags.get(service))))
            for service in WRITERS
            if service != SCHEDULER or not is_of_nodes
        }
        return tables.silences(self.cluster, silent) + self.unreadable(is_of_nodes=is_of_nodes)

    def unreadable(self, *, is_of_nodes: bool = False) -> tuple[str, ...]:
        """Return that of some states only what they were before is known, as a newer or broken writer's."""
        views: dict[str, StateView[Any]] = {"nodes": self.nodes, "Pods of NodeSets": self.kube_pods}
        views["locks"] = self.locks
        if not is_of_nodes:
            views |= {"jobs": self.jobs, "placements": self.placements}
        return tables.unreadable(self.cluster, {what: len(view.undecodable) for what, view in views.items()})

    def without_scheduler(self) -> str:
        """Return for how long the pod-scheduler has had no leader; empty: it has one, or may have one."""
        return self._leaders.missing(now()).get(SCHEDULER, "")

    def _lags(self) -> dict[str, str]:
        return {"nodeset-controller": self._kubernetes_lag(), "syncer": self._slurm_lag()}

    def _kubernetes_lag(self) -> str:
        return tables.lag("Kubernetes", self._kubernetes_seen(), now(), tables.KUBERNETES_LATE_S)

    def _slurm_lag(self) -> str:
        statistics = self.statistics.get(subjects.STATISTICS_KEY)
        jobs = statistics.jobs_answered if statistics else None
        return tables.slurm_lag(self.slurm_seen(), jobs, now())

    def _kubernetes_seen(self) -> datetime | None:
        watch = self.kube_watch.get(subjects.LEADER_KEY)
        return watch.seen if watch else None

    def slurm_seen(self) -> datetime | None:
        """Return when Slurm last answered with its nodes."""
        statistics = self.statistics.get(subjects.STATISTICS_KEY)
        return statistics.nodes_answered if statistics else None

    def status(self) -> ClusterStatus:
        """Return the cluster in one screen."""
        self.require(*self.all)
        nodes, jobs, placements = self.nodes.values(), self.jobs.values(), self.placements.values()
        locks = tables.lock_rows(self.cluster, self.locks.values())
        alone = [one for one in placements if one.roster is None]
        return ClusterStatus(
            cluster=self.cluster,
            nodes=tables.counts((tables.state_word(node), 1) for node in nodes),
            drains=tables.drain_causes(nodes),
            locks=tables.counts((lock.lock, 1) for lock in locks),
            pending_locks=tuple(lock for lock in locks if lock.waiting)[: tables.LOCKS_MAX],
            jobs=tables.counts((job.state, job.array_tasks) for job in jobs if not job.is_over),
            waits=tables.counts(
                (job.reason or "no reason yet", job.array_tasks) for job in jobs if job.state == "PENDING"
            ),
            placements=tables.counts((one.phase, 1) for one in alone),
            gangs=len(placements) - len(alone),
            services=self._services(),
        )

    def _services(self) -> tuple[ServiceRow, ...]:
        seen = {"nodeset-controller": self._kubernetes_seen(), "syncer": self.slurm_seen()}
        lags, found = self._lags(), self._leaders.known()
        rows: list[ServiceRow] = []
        for service in sorted({*found, *seen}):
            leader, problem = found.get(service, ("", ""))
            problem = "; ".join(filter(None, (lags.get(service), problem)))
            rows.append(ServiceRow(service=service, leader=leader, seen=seen.get(service), problem=problem))
        return tuple(rows)
