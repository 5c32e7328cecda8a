"""What the scheduler needs of Kubernetes and Slurm; `PodStore` and `PlaceholderJobs` are these."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_pod_scheduler.gangs.model import Size
from sunk_pod_scheduler.placement.gang_membership import GangMembership
from sunk_pod_scheduler.placement.model import AnyJob, JobGone
from sunk_pod_scheduler.placement.node_filter import Port
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.reasons import PodReason
from sunk_slurm.submission import JobDescription


class PodPort(Protocol):
    """Pods that name us as their scheduler. Every write names the Pod's uid."""

    def require_complete(self) -> None:
        """Raise `TransientError` while not every Pod and Node is known."""
        ...

    def node(self, name: str) -> Node | None:
        """Return a Node."""
        ...

    def uid_of(self, key: str) -> str:
        """Return the uid of the Pod ``namespace/name``, as watched; empty where there is none."""
        ...

    def uids(self) -> list[str]:
        """Return the uids of all Pods, as watched."""
        ...

    def holders(self, port: Port) -> Mapping[str, frozenset[str]]:
        """Return the uids of the Pods that have a host port, by Node, as watched."""
        ...

    def claiming(self, job: int, owner: str = "") -> list[Pod]:
        """Return the Pods that have not left and say that *job* is *owner*'s, as watched.

        Without an *owner*: those whose claim to that number we have signed, whoever has it.
        """
        ...

    def left(self, job: int, owner: str) -> list[Pod]:
        """Return the Pods that have left and say that *job* is *owner*'s, as watched."""
        ...

    async def find(self, uid: str, namespace: str, name: str) -> Pod | None:
        """Return the Pod *uid*; None only if the API server has no such Pod. Without a name: as watched."""
        ...

    async def annotate(self, pod: Pod, claim: str) -> None:
        """Write which job is the Pod's."""
        ...

    async def note(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """Write *annotations* on the Pod; return it as written."""
        ...

    async def bind(self, pod: Pod, node: str) -> None:
        """Let the Pod tolerate the lock, then bind it to the Node *node*."""
        ...

    async def delete(self, pod: Pod) -> None:
        """Delete the Pod with its spec's grace, also where it goes with a longer one.

        It being gone is success.
        """
        ...

    async def report_end(self, pods: Sequence[Pod], reason: PodReason, message: str) -> None:
        """Say by Event on Pods that are about to be deleted, and on who controls them, why; before they are.

        It raises nothing and takes a bounded time: what cannot be said keeps no Pod.
        """
        ...

    async def refuse(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Say by Event and by condition why the Pod is not scheduled."""
        ...

    async def put_off(self, pod: Pod, reason: PodReason, message: str, *, is_quiet: bool = False) -> None:
        """Say by Event and by condition what the Pod waits for; nothing is wrong with it.

        *is_quiet*: by condition alone.
        """
        ...

    async def report_job_lost(self, pod: Pod, reason: PodReason, message: str, *, is_lost: bool) -> None:
        """Say by Event and by condition whether a Pod that runs has lost its job."""
        ...

    def record_event(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Say by Event that something went well."""
        ...

    def warn(self, pod: Pod, reason: PodReason, message: str) -> None:
        """Say by Event what its user had better know; the Pod is scheduled all the same."""
        ...


class JobPort(Protocol):
    """Placeholder jobs."""

    async def see(self, job: int) -> AnyJob:
        """Return a job, whatever its owner, from a fresh look; unknown where Slurm does not answer."""
        ...

    async def look(self, job: int, owner: Owner) -> AnyJob:
        """Return the job of *owner* from a fresh look; unknown where Slurm does not answer."""
        ...

    async def outcome_of(self, gone: JobGone, job: int, owner: Owner, ran: datetime | None) -> JobGone:
        """Return what became of the *job* of *owner* that slurmctld does not know, and that ran at *ran*."""
        ...

    async def who_cancelled(self, job: AnyJob, owner: Owner) -> str:
        """Return the Slurm user who cancelled the job, where accounting says so."""
        ...

    async def submit(self, description: JobDescription) -> int:
        """Submit a job and return its id."""
        ...

    def not_stored(self, uid: str, attempt: int) -> None:
        """Note that a job was submitted whose number could not be stored: no list from before tells of it."""
        ...

    async def find_marked(self, owner: Owner) -> int | None:
        """Return the job that carries our mark for *owner* and is not over; from all that Slurm has."""
        ...

    async def release(
        self, job: int, priority: int | None, admin_comment: str, owner: Owner, *, has_lost: bool = False
    ) -> None:
        """Let Slurm start the job of *owner*, which says so by *admin_comment*; raises where it is not his.

        *has_lost*: slurmctld has lost his job before this one.
        """
        ...

    async def exclude(self, job: int, excluded: str, owner: Owner) -> None:
        """Tell Slurm which nodes the job of *owner*, which waits, must not get; empty: it may have any.

        It raises where the job is not seen to be his.
        """
        ...

    async def mark_started(self, job: int, extra: str, admin_comment: str, owner: Owner) -> None:
        """Say by *extra* that the job of *owner* has started; raises where it is not seen to be his."""
        ...

    async def cancel(self, job: int, owner: Owner) -> None:
        """End the job of *owner*; it being over, or another's, is success."""
        ...


class WorkloadPort(Protocol):
    """What only the workload itself says."""

    async def is_gang(self, membership: GangMembership) -> bool:
        """Whether the Pods of the Job *membership* are placed together."""
        ...

    async def size(self, membership: GangMembership) -> Size:
        """Return how many Pods the workload *membership* has now, or why nobody can say."""
        ...
