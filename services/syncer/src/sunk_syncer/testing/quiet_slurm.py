"""A Slurm in memory in which nothing happens by itself."""

from collections.abc import Collection

from sunk_slurm.diag import Diag
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.partitions import Partition
from sunk_slurm.reads import KnownJob, NodeList, NotModified
from sunk_slurm.reservations import Reservation
from sunk_slurm.states import JobState
from sunk_slurm.testing import job as one_job
from sunk_slurm.testing import node, partition
from sunk_slurm.wire import Job, Node, Number


class QuietSlurm:
    """What a watch asks, of a Slurm of two nodes and, at first, two jobs; only a test changes anything."""

    def __init__(self, *state: str, reason: str = "None") -> None:
        """Give all jobs the same state and reason; PENDING if no state is given."""
        self.jobs: Collection[int] = (7, 8)
        self.state = state or ("PENDING",)
        self.reason = reason
        self.tasks = 1
        """Of each job, which is an array if these are several."""
        self.jobs_looked_at = 0
        self.listed = {"n1", "n2"}
        """The nodes that lists have."""
        self.found = {"n1", "n2"}
        """The nodes that looks find."""
        self.changed = 1
        """When nodes changed last."""
        self.clock = 1
        """Slurmctld's own."""
        self.unanswered: set[str] = set()
        """Of ``diag``, ``partitions`` and ``reservations``, those that fail."""

    async def nodes(self, update_time: int = 0) -> NodeList | NotModified:
        """Return those that are listed, if something changed since."""
        if update_time >= self.changed:
            return NotModified()
        return NodeList(nodes=tuple(map(node, sorted(self.listed))), last_update=self.changed)

    async def node(self, name: str) -> Node | None:
        """Return it if it is to be found."""
        return node(name) if name in self.found else None

    async def job_states(self) -> dict[int, KnownJob]:
        """Return all."""
        return dict.fromkeys(self.jobs, KnownJob(JobState.of(self.state), self.tasks))

    async def job(self, job: int) -> Job | None:
        """Return it, and count."""
        self.jobs_looked_at += 1
        return one_job(job, *self.state, reason=self.reason)

    async def diag(self) -> Diag:
        """Return that nothing was counted."""
        self._answer("diag")
        return Diag(req_time=Number.of(self.clock))

    async def partitions(self) -> tuple[Partition, ...]:
        """Return one."""
        self._answer("partitions")
        return (partition(),)

    async def reservations(self) -> tuple[Reservation, ...]:
        """Return none."""
        self._answer("reservations")
        return ()

    def _answer(self, question: str) -> None:
        if question in self.unanswered:
            raise SlurmUnavailableError(f"{question}: no answer")
