"""What gangs need beyond a single Pod; `WorkloadClient` is this."""

from typing import Protocol

from sunk_pod_scheduler.gangs.model import Size
from sunk_pod_scheduler.placement.gang_membership import GangMembership


class WorkloadPort(Protocol):
    """What only the workload itself says."""

    async def is_gang(self, membership: GangMembership) -> bool:
        """Whether the Pods of the Job *membership* are placed together."""
        ...

    async def size(self, membership: GangMembership) -> Size:
        """Return how many Pods the workload *membership* has now, or why nobody can say."""
        ...
