"""Answers to what placeholders' scripts and epilogs ask, through the gateway."""

from collections.abc import Callable
from typing import Final

import msgspec

from sunk_events.base import Reply
from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    Later,
    Noted,
    PlacementAnnounced,
    PlacementReleased,
    PlacementSilent,
    Refused,
    ReleasePlacement,
)
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler import marks, tokens
from sunk_pod_scheduler.book import Announcement, Book
from sunk_pod_scheduler.gangs.kin import kin
from sunk_pod_scheduler.ports import PodPort
from sunk_runtime.views import StateView

WAIT_S: Final = 4.0
"""How long a look at the Pod may take before the asker is told to ask again: less than its own try."""
_AFTER_START: Final = frozenset({"started", "bound", "ending", "ended"})


class _Lost(msgspec.Struct, frozen=True):
    """A Pod that runs for a job of which no placement tells."""

    uid: str
    pod: str
    owner: str
    """Whose placement is missing: the Pod's, or its gang's."""
    attempt: int


class Answerer:
    """Answers from placements; what has to be done first is left in the book."""

    def __init__(  # noqa: PLR0917 - what it asks, in the order of the layers
        self,
        placements: StateView[PlacementState],
        pods: PodPort,
        book: Book,
        key: bytes,
        poke: Callable[[str], None],
        slurm_jobs: StateView[SlurmJobState] | None = None,
    ) -> None:
        self._placements = placements
        self._pods = pods
        self._book = book
        self._key = key
        self._poke = poke
        self._slurm_jobs = slurm_jobs

    async def announced(self, request: PlacementAnnounced) -> Reply:
        """Note that the script runs, once that is stored."""
        self._placements.require_complete()
        placement = self._of_job(request.job)
        if placement is None:
            return Refused(code="unknown_job", reason=f"job {request.job} is no placeholder")
        if not tokens.is_token(request.token, self._key, placement.uid, placement.attempt):
            return _forbidden(request.job)

        def is_noted() -> bool:
            found = self._still(placement)
            return found is None or (found.phase in _AFTER_START and found.silent is None)

        self._book.hear(placement.uid, request.job, "heard")
        if not is_noted():
            self._book.announce(placement.uid, Announcement(request.job, request.node))
            self._poke(placement.uid)
            if not await self._book.until(placement.uid, is_noted, timeout_s=WAIT_S):
                return Later(reason=f"job {request.job} is not seen to run on {request.node}")
        return Noted()

    async def silent(self, request: PlacementSilent) -> Reply:
        """Note that a script's poll was cut; it may be heard again in a moment."""
        self._placements.require_complete()
        placement = self._of_job(request.job)
        if placement is not None and placement.phase == "bound":
            self._book.hear(placement.uid, request.job, "cut")
            self._poke(placement.uid)
        return Noted()

    async def released(self, request: ReleasePlacement) -> Reply:
        """Tell whether the job's Pod is gone; if not, it is on its way when this returns."""
        self._placements.require_complete()
        placement = self._of_job(request.job)
        if placement is None:
            return await self._released_unplaced(request)
        # Without a token it is the node's own epilog, which the gateway knows by its node's token.
        if request.token and not tokens.is_token(request.token, self._key, placement.uid, placement.attempt):
            return _forbidden(request.job)
        if not _is_pod_gone(placement):
            self._book.ask_release(placement.uid, request.job, is_epilog=not request.token)
            self._poke(placement.uid)

            def is_begun() -> bool:
                found = self._still(placement)
                return found is None or found.phase in {"ending", "ended"}

            if not await self._book.until(placement.uid, is_begun, timeout_s=WAIT_S):
                return Later(reason=f"Pod {_name(placement)} could not be looked at yet")
        found = self._still(placement)
        return PlacementReleased(is_pod_gone=found is None or _is_pod_gone(found), pod=_name(placement))

    async def _released_unplaced(self, request: ReleasePlacement) -> Reply:
        """Tell of a job without a placement: its Pod is gone, unless the placement was lost."""
        self._pods.require_complete()
        found = await self._lost(request.job)
        if found is None:
            return PlacementReleased(is_pod_gone=True)
        if request.token and not tokens.is_token(request.token, self._key, found.owner, found.attempt):
            return _forbidden(request.job)
        self._book.ask_release(found.owner, request.job, is_epilog=not request.token)
        self._poke(found.uid)
        return Later(reason=f"the placement of Pod {found.pod} is lost, and made anew")

    async def _lost(self, job: int) -> _Lost | None:
        """Return a Pod that is on a Node and says that *job* is its job, if its placement is missing."""
        for uid in self._pods.uids():
            pod = await self._pods.find(uid, "", "")
            text = "" if pod is None else pod.metadata.annotations.get(ANNOTATION_JOB, "")
            if pod is None or str(job) not in text or not pod.spec.node_name:
                continue
            gang = kin(pod)
            for owner in (uid, *((gang.id,) if gang else ())):
                claim = marks.read_claim(self._key, owner, text)
                if claim is None or claim.job != job or self._placements.get(owner) is not None:
                    continue
                if not pod.has_left and (claim.is_signed or self._is_marked(job, owner, claim.attempt)):
                    return _Lost(uid, pod.key, owner, claim.attempt)
        return None

    def _is_marked(self, job: int, owner: str, attempt: int) -> bool:
        """Whether the bus knows *job* with our mark: a number that we did not sign needs that."""
        state = None if self._slurm_jobs is None else self._slurm_jobs.get(str(job))
        mark = None if state is None else marks.read_extra(self._key, state.extra, state.user_id)
        return mark is not None and (mark.uid, mark.attempt) == (owner, attempt)

    def _of_job(self, job: int) -> PlacementState | None:
        """Return the placement of a Pod, or of a gang: its members have the same job, and are not asked."""
        placements = self._placements.values()
        return next((found for found in placements if found.job == job and not found.gang), None)

    def _still(self, placement: PlacementState) -> PlacementState | None:
        """Return *placement* as it is now; None where its job is not its own any more."""
        found = self._placements.get(placement.uid)
        is_same = found is not None and (found.job, found.attempt) == (placement.job, placement.attempt)
        return found if is_same else None


def _is_pod_gone(placement: PlacementState) -> bool:
    return not placement.is_pod_present or placement.phase == "ended"


def _forbidden(job: int) -> Refused:
    return Refused(code="forbidden", reason=f"the token is not that of job {job}")


def _name(placement: PlacementState) -> str:
    return f"{placement.namespace}/{placement.pod}"
