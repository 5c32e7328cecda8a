"""What gangs need beyond a single Pod; `workloads.Workloads` is this."""

from typing import Protocol

from sunk_pod_scheduler.gangs.kin import Kin


class WorkloadPort(Protocol):
    """What only the workload itself says."""

    async def is_gang(self, kin: Kin) -> bool:
        """Whether the Pods of the Job *kin* are placed together."""
        ...

    async def size(self, kin: Kin) -> int:
        """Return how many Pods the Job *kin* has now."""
        ...
