"""What gangs need beyond a single Pod; `workloads.Workloads` is this."""

from typing import Protocol

from sunk_pod_scheduler.gangs.kin import Kin
from sunk_pod_scheduler.gangs.model import Size


class WorkloadPort(Protocol):
    """What only the workload itself says."""

    async def is_gang(self, kin: Kin) -> bool:
        """Whether the Pods of the Job *kin* are placed together."""
        ...

    async def size(self, kin: Kin) -> Size:
        """Return how many Pods the workload *kin* has now, or why nobody can say."""
        ...
