"""What the syncer needs of Slurm, as wide as its need; `sunk_slurm.client.SlurmClient` fits."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol, Self

from sunk_slurm.diag import Diag
from sunk_slurm.partitions import Partition
from sunk_slurm.reads import KnownJob, NodeList, NotModified
from sunk_slurm.reservations import Reservation
from sunk_slurm.submission import JobChange
from sunk_slurm.wire import Features, Job, Node


class SlurmNodes(Protocol):
    """Looks at Slurm nodes."""

    async def nodes(self, update_time: int = 0) -> NodeList | NotModified:
        """Return every node, unless nothing changed since *update_time*."""
        ...

    async def node(self, name: str) -> Node | None:
        """Return one node, or None where Slurm has none of that name."""
        ...


class Answered(Protocol):
    """Knows how old what it told is."""

    @property
    def answered(self) -> datetime | None:
        """When Slurm was last asked for all there is, answered and was believed."""
        ...


class DrainWrites(Protocol):
    """Drains Slurm nodes. Every call may be repeated."""

    def sending_until(self, moment: float) -> Self:
        """Return the same for calls that are not sent after *moment*, in monotonic time."""
        ...

    async def drain(self, name: str, reason: str) -> None:
        """Set DRAIN with *reason*."""
        ...

    async def drain_several(self, names: Collection[str], reason: str) -> None:
        """Set DRAIN with *reason* on all of *names*."""
        ...


class NodeWrites(DrainWrites, Protocol):
    """Changes Slurm nodes. Every call may be repeated."""

    async def undrain(self, name: str) -> None:
        """Take DRAIN away."""
        ...

    async def set_down(self, name: str, reason: str | None = None) -> None:
        """Set DOWN; without *reason* the reason stays."""
        ...

    async def resume(self, name: str) -> None:
        """Take it out of DOWN; that it is in use is refused."""
        ...

    async def describe_node(
        self, name: str, *, extra: str | None = None, features: Features | None = None
    ) -> None:
        """Replace the Extra, the features, or both."""
        ...

    async def place_node(self, name: str, topology: str) -> None:
        """Set its place in the topologies."""
        ...

    async def delete_node(self, name: str) -> None:
        """Delete the record; it being gone is success."""
        ...


class Reconfigures(Protocol):
    """Has Slurm read its configuration again."""

    async def reconfigure(self) -> None:
        """Return when slurmctld has done so."""
        ...


class JobWrites(Protocol):
    """Looks at single jobs, puts them back into the queue, and releases them."""

    async def job(self, job: int) -> Job | None:
        """Return one job, or None where slurmctld does not know it."""
        ...

    async def requeue_job(self, job: str) -> bool:
        """Requeue what Slurm calls *job*; False where Slurm's interface has no call for that."""
        ...

    async def update_job(self, job: int, change: JobChange) -> None:
        """Change what *change* names."""
        ...


class SlurmJobs(Protocol):
    """Looks at Slurm jobs."""

    async def job_states(self) -> dict[int, KnownJob]:
        """Return the state of every job by its id."""
        ...

    async def job(self, job: int) -> Job | None:
        """Return one job, or None where slurmctld does not know it."""
        ...


class SlurmStatistics(Protocol):
    """Looks at partitions and the scheduler."""

    async def partitions(self) -> tuple[Partition, ...]:
        """Return every partition."""
        ...

    async def reservations(self) -> tuple[Reservation, ...]:
        """Return every reservation."""
        ...

    async def diag(self) -> Diag:
        """Return what ``sdiag`` shows."""
        ...
