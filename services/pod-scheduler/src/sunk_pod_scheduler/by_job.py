"""Placements by their job. Several may have one number, where slurmctld lost its state and counts anew."""

from sunk_events.placements import PlacementState
from sunk_runtime.views import StateView


class ByJob:
    """The placements of Pods and of gangs whose present job has a number; members of gangs are not asked."""

    def __init__(self, placements: StateView[PlacementState]) -> None:
        self._placements = placements
        self._changes = placements.changes()
        self._uids: dict[int, set[str]] = {}
        self._job_by_uid: dict[str, int] = {}

    def of(self, job: int) -> list[PlacementState]:
        """Return those of *job*, the lost ones last. What has changed until now is taken into account."""
        for uid in self._changes.taken():
            self._follow(uid)
        states = (self._placements.get(uid) for uid in sorted(self._uids.get(job, ())))
        found = [state for state in states if state is not None]
        return sorted(found, key=lambda state: state.lost is not None)

    def _follow(self, uid: str) -> None:
        state = self._placements.get(uid)
        before = self._job_by_uid.pop(uid, None)
        if before is not None:
            self._uids[before].discard(uid)
            if not self._uids[before]:
                del self._uids[before]
        if state is not None and state.job is not None and not state.gang:
            self._job_by_uid[uid] = state.job
            self._uids.setdefault(state.job, set()).add(uid)
