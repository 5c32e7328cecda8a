"""One life of slurmctld: its clock, its timers, its word with every slurmd. What it decides is in its parts.

What must stay true: all that it changes is in `State`, and each change is told to `changed`, so that a
checker sees it; what it had not saved when it was killed is gone, five seconds at most.
"""

import copy
from asyncio import TimerHandle
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from sunk_simulation import reached
from sunk_simulation.loop import Process
from sunk_simulation.slurm.conf import USERS, SlurmConf
from sunk_simulation.slurm.jobs import MESSAGE_TIMEOUT_S, Jobs
from sunk_simulation.slurm.nodes import Nodes
from sunk_simulation.slurm.records import AccountedJob, JobRecord, NodeRecord, State
from sunk_simulation.slurm.scheduling import Scheduling
from sunk_simulation.slurm.scripts import PLACEHOLDER

if TYPE_CHECKING:
    from sunk_simulation.slurm.model import ModelSlurm

SAVE_MAX_WAIT_S: Final = 5.0
LIMITS_EVERY_S: Final = 30.0
SCHED_INTERVAL_S: Final = 5.0
REGISTRATION_S: Final = (0.3, 3.0)
"""After so long a slurmd that is asked to register has done it."""


class Slurmctld:
    """The daemon. A new one is made for each of its lives."""

    def __init__(self, slurm: "ModelSlurm", state: State, process: Process) -> None:
        self.slurm: Final = slurm
        self.state: Final = state
        self.process: Final = process
        self.conf: Final[SlurmConf] = slurm.conf
        self.random: Final[Random] = slurm.random
        self.jobs: Final = Jobs(self)
        self.nodes: Final = Nodes(self)
        self.scheduling: Final = Scheduling(self)
        self.nodes_changed = self.jobs_changed = self.partitions_changed = self.now()
        self.rpcs: Final = Counter[str]()
        self.counts: Final = Counter[str]()
        """What ``sdiag`` counts: jobs submitted, started and so on."""
        self._is_saving = False

    def now(self) -> int:
        """Return its time, in seconds since 1970."""
        return self.process.clock.peek_ns() // 1_000_000_000

    def later(self, seconds: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        """Call back in so many seconds, if it lives then."""
        return self.slurm.loop.at(self.process, seconds, callback, *args)

    def boot(self) -> None:
        """Begin, with what was saved."""
        self.nodes.recover()
        self.jobs.recover()
        self.save()
        self.later(self.conf.slurmd_timeout_s / 3 or 30.0, self._ping)
        self.later(LIMITS_EVERY_S, self._look_at_limits)
        self.later(SCHED_INTERVAL_S, self._schedule)

    def tell(self, what: str, **more: object) -> None:
        """Write a line of the trace."""
        self.slurm.trace.write("slurmctld", what, **more)

    def node_changed(self, node: NodeRecord) -> None:
        """Take note of a change."""
        self.nodes_changed = self.now()
        words = "+".join(self.nodes.words(node))
        self.tell("node is", node=node.name, state=words, reason=node.reason[:60])
        jobs = {"+".join((job.base, *sorted(job.flags))) for job in self.nodes.jobs_on(node.name)}
        reached.state("slurm-node", words, _whose(node.reason), *sorted(jobs))
        self._changed()

    def job_changed(self, job: JobRecord) -> None:
        """Take note of a change, also of the nodes that it has."""
        self.jobs_changed = self.now()
        if job.nodes:
            self.nodes_changed = self.jobs_changed
        state = "+".join((job.base, *sorted(job.flags)))
        self.tell("job is", job=job.job_id, state=state, reason=job.reason, nodes=",".join(job.nodes))
        reached.state("slurm-job", _kind(job), state, job.reason, "" if job.priority else "held")
        self._account(job)
        self._changed()

    def partition_changed(self) -> None:
        """Take note of a change."""
        self.partitions_changed = self.now()
        self._changed()

    def save(self) -> None:
        """Write everything to StateSaveLocation."""
        self._is_saving = False
        self.slurm.saved = copy.deepcopy(self.state)

    def user_name(self, user_id: int) -> str:
        """Return a user's name; that of a user whom the machine does not know is its number."""
        return USERS.get(user_id, str(user_id))

    def send(self, node: str, name: str, *args: Any) -> bool:
        """Send an order to a node's slurmd; return whether it is there to hear it."""
        slurmd = self.slurm.slurmds.get(node)
        if slurmd is None or not self.slurm.hears(node):
            return False
        assert slurmd.process is not None
        seconds = self.random.uniform(0.001, 0.02)
        self.slurm.loop.at(slurmd.process, seconds, getattr(slurmd, name), *args)
        return True

    def ask_registration(self, node: str) -> None:
        """Have a node register soon."""
        self.later(self.random.uniform(*REGISTRATION_S), self._register, node)

    def _register(self, node: str) -> None:
        if not self.send(node, "register"):
            self.later(MESSAGE_TIMEOUT_S, self.nodes.note_silence, node)

    def _changed(self) -> None:
        if not self._is_saving:
            self._is_saving = True
            self.later(self.random.uniform(0.0, SAVE_MAX_WAIT_S), self.save)
        self.slurm.changed()

    def _ping(self) -> None:
        for node in list(self.state.nodes.values()):
            if node.has_slurmd and node.base != "FUTURE":
                self.nodes.ping(node)
        self.later(self.conf.slurmd_timeout_s / 3 or 30.0, self._ping)

    def _look_at_limits(self) -> None:
        self.jobs.end_those_over_limits()
        self.jobs.purge()
        self.later(LIMITS_EVERY_S, self._look_at_limits)

    def _schedule(self) -> None:
        self.scheduling.run()
        self.later(SCHED_INTERVAL_S, self._schedule)

    def _account(self, job: JobRecord) -> None:
        if not self.conf.has_accounting:
            return
        key = (job.job_id, job.submit_time)
        kept = self.slurm.accounting.setdefault(
            key, AccountedJob(job.job_id, job.name, self.user_name(job.user_id), job.submit_time)
        )
        kept.state = job.base
        if job.is_over:
            kept.extra, kept.end_time, kept.kill_request_user = job.extra, job.end_time, job.cancelled_by


def _kind(job: JobRecord) -> str:
    if job.array_job_id or job.het_job_id:
        return "array" if job.array_job_id else "heterogeneous"
    return "placeholder" if PLACEHOLDER in job.script else "single"


def _whose(reason: str) -> str:
    """Return the kind of a node's reason: ours begin with a word of ours."""
    return " ".join(reason.split()[:3]) if reason.startswith("k8s:") else "another's" if reason else "none"
