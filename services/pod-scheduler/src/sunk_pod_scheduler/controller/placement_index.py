"""Placements by their job, and the nodes of those that have lost theirs.

Several may have one number, where slurmctld lost its state and counts anew.
"""

from collections.abc import Collection

from sunk_events.placements import PlacementPhase, PlacementState
from sunk_runtime.views import StateView

_OVER: frozenset[PlacementPhase] = frozenset({"ended", "refused"})


class PlacementIndex:
    """The placements of Pods and of gangs by their present job, and by a lost one; members are not asked."""

    def __init__(self, placements: StateView[PlacementState]) -> None:
        self._placements = placements
        self._changes = placements.changes()
        self._uids: dict[int, set[str]] = {}
        self._jobs_by_uid: dict[str, frozenset[int]] = {}
        self._lost: dict[str, frozenset[str]] = {}
        """By uid: the nodes of Pods whose job slurmctld has lost."""
        self._without_jobs: dict[str, set[str]] = {}
        """By Slurm node: the uids of those that it has."""

    def of(self, job: int) -> list[PlacementState]:
        """Return those of *job*, the lost ones last. What has changed until now is taken into account."""
        found = (state for state in self.of_number(job) if state.job == job)
        return sorted(found, key=lambda state: state.lost is not None)

    def of_number(self, job: int) -> list[PlacementState]:
        """Return those whose present job has the number *job*, or the one that slurmctld lost of them."""
        self._catch_up()
        states = (self._placements.get(uid) for uid in sorted(self._uids.get(job, ())))
        return [state for state in states if state is not None]

    def nodes_without_jobs(self) -> Collection[str]:
        """Return the Slurm nodes on which Pods run whose job slurmctld has lost, and that have no other yet.

        Only to Slurm such a node has room.
        """
        self._catch_up()
        return self._without_jobs.keys()

    def _catch_up(self) -> None:
        for uid in self._changes.taken():
            self._follow(uid)

    def _follow(self, uid: str) -> None:
        state = self._placements.get(uid)
        for node in self._lost.pop(uid, ()):
            self._without_jobs[node].discard(uid)
            if not self._without_jobs[node]:
                del self._without_jobs[node]
        for before in self._jobs_by_uid.pop(uid, ()):
            self._uids[before].discard(uid)
            if not self._uids[before]:
                del self._uids[before]
        if state is None or state.gang:
            return
        if state.lost is not None and state.phase not in _OVER:
            self._lost[uid] = _nodes_of(state)
            for node in self._lost[uid]:
                self._without_jobs.setdefault(node, set()).add(uid)
        numbers = frozenset(number for number in (state.job, state.lost_job) if number is not None)
        if numbers:
            self._jobs_by_uid[uid] = numbers
        for number in numbers:
            self._uids.setdefault(number, set()).add(uid)


def _nodes_of(state: PlacementState) -> frozenset[str]:
    if state.roster is None:
        return frozenset({state.node} - {""})
    return frozenset({member.node for member in state.roster.members} - {""})
