"""When slurmctld gives jobs their nodes, and what it says of those that wait."""

from asyncio import TimerHandle
from typing import TYPE_CHECKING, Final

from sunk_simulation.slurm.records import Held, JobRecord
from sunk_simulation.slurm.select import Place, choose

if TYPE_CHECKING:
    from sunk_simulation.slurm.slurmctld import Slurmctld

SOON_S: Final = (0.05, 0.5)
"""After something changed, with ``batch_sched_delay=0``."""
_DRAINED: Final = frozenset({"DRAIN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN"})
UNAVAILABLE: Final = (
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
)


class Scheduling:
    """The scheduler of one slurmctld."""

    def __init__(self, ctld: "Slurmctld") -> None:
        self._ctld = ctld
        self._due: TimerHandle | None = None

    def soon(self) -> None:
        """Look soon, but never at once: who has just released a job may change it once more."""
        if self._due is not None:
            self._due.cancel()
        self._due = self._ctld.later(self._ctld.random.uniform(*SOON_S), self.run)

    def run(self) -> None:
        """Give nodes to those who can begin, the most important first."""
        ctld, taken = self._ctld, set[str]()
        waiting = [job for job in ctld.state.jobs.values() if job.is_pending and not job.is_completing]
        waiting.sort(key=lambda job: (-self._tier(job), -job.priority, job.submit_time, job.job_id))
        done: set[int] = set()
        for job in waiting:
            if job.job_id in done or not self._may_begin(job):
                continue
            if job.het_job_id:
                components = [one for one in waiting if one.het_job_id == job.het_job_id]
                done |= {one.job_id for one in components}
                self._try_together(components)
                continue
            while self._try(job, taken):
                """The next task of an array."""

    def _tier(self, job: JobRecord) -> int:
        return self._ctld.state.partitions[job.partition].priority_tier

    def _may_begin(self, job: JobRecord) -> bool:
        ctld = self._ctld
        if not job.priority:
            return False
        if job.user_id not in ctld.conf.users:
            job.priority = 0
            self._say(job, "JobHeldAdmin")
        elif not ctld.state.partitions[job.partition].is_up:
            self._say(job, "PartitionDown")
        elif job.dependency and (said := self._depends(job)):
            self._say(job, said)
        elif job.begin_time > ctld.now():
            self._say(job, "BeginTime")
        else:
            return True
        return False

    def _depends(self, job: JobRecord) -> str:
        for part in job.dependency.split(","):
            kind, _, number = part.partition(":")
            if not number.isdecimal() or (other := self._ctld.state.jobs.get(int(number))) is None:
                continue
            if not other.is_over or other.is_completing:
                return "Dependency"
            if kind == "afterok" and other.base != "COMPLETED":
                return "DependencyNeverSatisfied"
        return ""

    def _try(self, job: JobRecord, taken: set[str]) -> bool:
        """Begin *job*, or the next task of an array, if it can; else keep its nodes from those behind it."""
        ctld = self._ctld
        places = [place for place in self._places(job) if place.node.name not in taken]
        choice = choose(job, places, self._tier)
        if choice is None or choice.victims:
            able = [place.node.name for place in places if not place.jobs or choice is None]
            taken |= set(job.required_nodes) or set(able)
            for victim in choice.victims if choice else ():
                ctld.jobs.preempt(victim)
            self._say(job, *self._why(job))
            return False
        begins = ctld.jobs.split(job, job.array_tasks[0]) if job.array_tasks else job
        is_last = begins is job
        ctld.jobs.start(begins, choice.held)
        return not is_last

    def _try_together(self, components: list[JobRecord]) -> None:
        chosen: list[tuple[JobRecord, Place]] = []
        held: list[dict[str, Held]] = []
        for job in components:
            places = [
                Place(place.node, (*place.jobs, *(one for one, other in chosen if other.node is place.node)))
                for place in self._places(job)
            ]
            choice = choose(job, places, self._tier)
            if choice is None or choice.victims:
                self._say(components[0], "Resources")
                return
            held.append(choice.held)
            job.held = choice.held
            by_name = {place.node.name: place for place in places}
            chosen += [(job, by_name[name]) for name in choice.held]
        for job, taken in zip(components, held, strict=True):
            self._ctld.jobs.start(job, taken)

    def _places(self, job: JobRecord) -> list[Place]:
        """Return the nodes that take jobs now, with the jobs on them."""
        ctld = self._ctld
        nodes = ctld.nodes.in_partition(ctld.state.partitions[job.partition])
        ready = (node for node in nodes if node.base == "IDLE" and node.flags.isdisjoint(_DRAINED))
        return [Place(node, tuple(ctld.nodes.jobs_on(node.name))) for node in ready]

    def _why(self, job: JobRecord) -> tuple[str, str]:
        ctld = self._ctld
        ready = {place.node.name for place in self._places(job)}
        missing = [name for name in job.required_nodes if name not in ready]
        if missing:
            return "ReqNodeNotAvail", f"ReqNodeNotAvail, UnavailableNodes:{','.join(missing)}"
        nodes = {node.name for node in ctld.nodes.in_partition(ctld.state.partitions[job.partition])}
        if job.min_nodes > len(nodes):
            return "PartitionConfig", ""
        return "Resources", UNAVAILABLE if nodes - ready else ""

    def _say(self, job: JobRecord, reason: str, description: str = "") -> None:
        if (job.reason, job.description) != (reason, description):
            job.reason, job.description = reason, description
            self._ctld.job_changed(job)
