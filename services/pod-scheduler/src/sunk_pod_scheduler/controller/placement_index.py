"""Placements by their job. Several may have one number, where slurmctld lost its state and counts anew."""

from sunk_events.placements import PlacementState
from sunk_runtime.views import StateView


class PlacementIndex:
    """The placements of Pods and of gangs by their present job, and by a lost one; members are not asked."""

    def __init__(self, placements: StateView[PlacementState]) -> None:
        self._placements = placements
        self._changes = placements.changes()
        self._uids: dict[int, set[str]] = {}
        self._jobs_by_uid: dict[str, frozenset[int]] = {}

    def of(self, job: int) -> list[PlacementState]:
        """Return those of *job*, the lost ones last. What has changed until now is taken into account."""
        found = (state for state in self.of_number(job) if state.job == job)
        return sorted(found, key=lambda state: state.lost is not None)

    def of_number(self, job: int) -> list[PlacementState]:
        """Return those whose present job has the number *job*, or the one that slurmctld lost of them."""
        for uid in self._changes.taken():
            self._follow(uid)
        states = (self._placements.get(uid) for uid in sorted(self._uids.get(job, ())))
        return [state for state in states if state is not None]

    def _follow(self, uid: str) -> None:
        state = self._placements.get(uid)
        for before in self._jobs_by_uid.pop(uid, ()):
            self._uids[before].discard(uid)
            if not self._uids[before]:
                del self._uids[before]
        if state is None or state.gang:
            return
        numbers = frozenset(number for number in (state.job, state.lost_job) if number is not None)
        if numbers:
            self._jobs_by_uid[uid] = numbers
        for number in numbers:
            self._uids.setdefault(number, set()).add(uid)
