"""Kubernetes Jobs, for the one thing that their Pods do not say: how many run at once, and of how many."""

from typing import Final

from sunk_kube.client import KubeClient
from sunk_kube.objects import KubeObject, KubeStruct
from sunk_kube.resources import Resource
from sunk_pod_scheduler.gangs.kin import Kin
from sunk_runtime.errors import ConflictError

_KNOWN_MAX: Final = 10_000


class JobSpec(KubeStruct, frozen=True):
    """How many Pods a Job makes."""

    parallelism: int | None = None
    completions: int | None = None


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


JOBS: Final = Resource(group="batch", kind="Job", plural="jobs", struct=KubeJob)


class Workloads:
    """Asks the API server, for each Job once whether it is a gang, and for its size each time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._is_gang: dict[str, bool] = {}
        """By the Job's uid."""

    async def is_gang(self, kin: Kin) -> bool:
        """Whether the Pods of the Job *kin* are placed together; that does not change in its life.

        Raises:
            ConflictError: the Job is gone, and its Pods go too.
        """
        if kin.uid not in self._is_gang:
            if len(self._is_gang) >= _KNOWN_MAX:
                self._is_gang.clear()
            self._is_gang[kin.uid] = (await self._job(kin)).is_gang
        return self._is_gang[kin.uid]

    async def size(self, kin: Kin) -> int:
        """Return how many Pods the Job *kin* has now. Raises as `is_gang`."""
        return (await self._job(kin)).size

    async def _job(self, kin: Kin) -> KubeJob:
        found = await self._client.find(JOBS, kin.name, kin.namespace)
        if found is None or found.metadata.uid != kin.uid:
            raise ConflictError(f"{kin.said} is gone")
        return found
