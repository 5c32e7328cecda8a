"""The objects behind gangs, for the one thing that their Pods do not say: how many there are at once.

Source: Kubernetes, "Jobs"; JobSet's and scheduler-plugins' APIs, of the versions below.
"""

from typing import Final

from sunk_kube.client import KubeClient
from sunk_kube.objects import KubeObject, KubeStruct
from sunk_kube.resources import Resource
from sunk_kube.wellknown import ANNOTATION_GANG, ANNOTATION_GANG_SIZE
from sunk_pod_scheduler.gangs.model import Size
from sunk_pod_scheduler.placement.gang_membership import SIZE_MAX, GangMembership
from sunk_runtime.errors import ConflictError, PermanentError

_KNOWN_MAX: Final = 10_000


class JobSpec(KubeStruct, frozen=True):
    """How many Pods a Job makes."""

    parallelism: int | None = None
    completions: int | None = None

    @property
    def are_all_at_once(self) -> bool:
        """No Pod of it waits for another to end."""
        return self.completions is None or (self.parallelism or 1) >= self.completions

    @property
    def at_once(self) -> int:
        """How many of its Pods there are at once."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class JobStatus(KubeStruct, frozen=True):
    """What has become of them."""

    succeeded: int = 0


class KubeJob(KubeObject, frozen=True):
    """A Job of batch/v1."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def is_gang(self) -> bool:
        """It runs all its Pods at once, and more than one."""
        return (self.spec.completions or 0) > 1 and self.spec.parallelism == self.spec.completions

    @property
    def size(self) -> int:
        """How many Pods it makes now: what has succeeded is not made again."""
        return max(1, (self.spec.completions or 1) - self.status.succeeded)


class JobTemplate(KubeStruct, frozen=True):
    """What each Job of a kind is made of."""

    spec: JobSpec = JobSpec()


class ReplicatedJob(KubeStruct, frozen=True):
    """One kind of a JobSet's Jobs."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()
    depends_on: tuple[KubeStruct, ...] = ()


class StartupPolicy(KubeStruct, frozen=True):
    """In which order a JobSet makes its Jobs."""

    startup_policy_order: str = ""


class JobSetSpec(KubeStruct, frozen=True):
    """Which Jobs a JobSet makes."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    startup_policy: StartupPolicy | None = None


class ReplicatedJobStatus(KubeStruct, frozen=True):
    """What has become of the Jobs of one kind."""

    name: str = ""
    succeeded: int = 0


class JobSetStatus(KubeStruct, frozen=True):
    """What has become of a JobSet's Jobs."""

    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()


class JobSet(KubeObject, frozen=True):
    """A JobSet."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()

    @property
    def size(self) -> int:
        """How many Pods its Jobs have at once, but for those Jobs that have succeeded."""
        over = {found.name: found.succeeded for found in self.status.replicated_jobs_status}
        return sum(
            max(0, found.replicas - over.get(found.name, 0)) * found.template.spec.at_once
            for found in self.spec.replicated_jobs
        )

    @property
    def problem(self) -> str:
        """Why its Pods are never all there at once."""
        policy = self.spec.startup_policy
        if policy is not None and policy.startup_policy_order == "InOrder":
            return "creates some of its Jobs only when others are ready (startupPolicy: InOrder)"
        for found in self.spec.replicated_jobs:
            if found.depends_on:
                return f"creates the Jobs {found.name} only when others are ready or complete (dependsOn)"
            if not found.template.spec.are_all_at_once:
                return f"has Jobs {found.name} with more completions than parallelism"
        return ""


class PodGroupSpec(KubeStruct, frozen=True):
    """How many Pods a PodGroup has."""

    min_member: int = 0


class PodGroup(KubeObject, frozen=True):
    """A PodGroup of scheduler-plugins."""

    spec: PodGroupSpec = PodGroupSpec()


JOBS: Final = Resource(group="batch", kind="Job", plural="jobs", struct=KubeJob)
JOB_SETS: Final = Resource(
    group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets", struct=JobSet
)
POD_GROUPS: Final = Resource(
    group="scheduling.x-k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups", struct=PodGroup
)


class WorkloadClient:
    """Asks the API server, for each Job once whether it is a gang, and for a workload's size each time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._is_gang: dict[str, bool] = {}
        """By the Job's uid."""

    async def is_gang(self, membership: GangMembership) -> bool:
        """Whether the Pods of the Job *membership* are placed together; that does not change in its life.

        Raises:
            ConflictError: the Job is gone, and its Pods go too.
        """
        if membership.uid not in self._is_gang:
            if len(self._is_gang) >= _KNOWN_MAX:
                self._is_gang.clear()
            self._is_gang[membership.uid] = (await self._job(membership)).is_gang
        return self._is_gang[membership.uid]

    async def size(self, membership: GangMembership) -> Size:
        """Return how many Pods the workload *membership* has now, or why not. Raises as `is_gang`."""
        found = await self._size(membership)
        if max(found.count or 0, found.declared or 0) <= SIZE_MAX:
            return found
        many = f"{membership.title} has {found.count} Pods, and at most {SIZE_MAX} can be placed together"
        return Size(problem=f"{many}: set {ANNOTATION_GANG}: none to place Pods one by one")

    async def _size(self, membership: GangMembership) -> Size:
        if membership.kind == "Job":
            job = await self._job(membership)
            return Size(count=job.size, declared=job.spec.completions)
        try:
            count, problem = await (self._of_job_set if membership.kind == "JobSet" else self._of_pod_group)(
                membership
            )
        except PermanentError as error:
            count, problem = 0, f"cannot be read: {error}"
        if count and not problem:
            return Size(count=count)
        if count:
            return Size(
                problem=f"{membership.title} {problem}: set {ANNOTATION_GANG}: none to place Pods one by one"
            )
        why = problem or "does not specify its number of Pods"
        return Size(problem=f"{membership.title} {why}: set {ANNOTATION_GANG_SIZE} on each of its Pods")

    async def _of_job_set(self, membership: GangMembership) -> tuple[int, str]:
        found = await self._client.find(JOB_SETS, membership.name, membership.namespace)
        return (0, "does not exist") if found is None else (found.size, found.problem)

    async def _of_pod_group(self, membership: GangMembership) -> tuple[int, str]:
        found = await self._client.find(POD_GROUPS, membership.name, membership.namespace)
        return (0, "does not exist") if found is None else (found.spec.min_member, "")

    async def _job(self, membership: GangMembership) -> KubeJob:
        found = await self._client.find(JOBS, membership.name, membership.namespace)
        if found is None or found.metadata.uid != membership.uid:
            raise ConflictError(f"{membership.title} is gone")
        return found
