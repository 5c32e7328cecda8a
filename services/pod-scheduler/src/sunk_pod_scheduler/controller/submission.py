"""From an intent to a job whose id is stored, for a Pod or for a gang.

What must stay true: the intent is stored first, as from then on a job may exist that only its mark tells;
the job's id is on the Pods before it is stored.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.placements import PlacementState
from sunk_kube.objects import Pod
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.limits import LOOK_AGAIN_S, tries
from sunk_pod_scheduler.placement.model import ExcludeNodes
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_runtime.errors import ConflictError
from sunk_runtime.together import each
from sunk_runtime.views import now
from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError
from sunk_slurm.submission import JobDescription

log = logging.getLogger(__name__)

UNAVAILABLE: Final = "SlurmUnavailable"
UNAVAILABLE_TEXT: Final = "Slurm does not answer; the Pod is submitted once it does"


class SubmissionObserver(Protocol):
    """Who is told on Pods what becomes of an intent."""

    async def unavailable(self, intent: PlacementState) -> None:
        """Say that Slurm does not answer."""
        ...

    async def rejected(self, intent: PlacementState, reason: str) -> None:
        """Say why Slurm does not take the job."""
        ...


class Submission:
    """Submits jobs for Pods to one Slurm cluster, while it may."""

    def __init__(self, context: Context, store: Callable[[PlacementState], Awaitable[None]]) -> None:
        self._context = context
        self._store = store

    def intent(self, before: PlacementState | None, fresh: PlacementState, attempt: int) -> PlacementState:
        """Return what is stored before attempt *attempt*: *fresh*, or *before* where its job was lost."""
        base = before if before is not None and before.lost is not None else fresh
        digest = self._context.placeholder.digest(base.uid, attempt)
        return replace(base, changed=now(), attempt=attempt, token_sha256=digest)

    async def submit(
        self,
        intent: PlacementState,
        description: JobDescription,
        pods: Sequence[Pod],
        observer: SubmissionObserver,
    ) -> None:
        """Store the intent, then submit a held job, write its id on *pods*, store it.

        What Slurm does not take it may take later, when its partition, account or node is there: ever rarer.
        """
        await self._store(intent)
        self._context.check()
        try:
            job = await self._context.jobs.submit(description)
        except SlurmRejectedError as error:
            await observer.rejected(intent, str(error))
            await self._store(put_off(intent, str(error)))
        except SlurmUnavailableError:
            await observer.unavailable(intent)
            raise
        else:
            is_stored = False
            try:
                await self._submitted(intent, pods, job)
                is_stored = True
            finally:
                if not is_stored:
                    self._context.jobs.not_stored(intent.uid, attempt=intent.attempt)

    async def resume(
        self,
        intent: PlacementState | None,
        attempt: int,
        pods: Sequence[Pod],
        observer: SubmissionObserver,
        user_id: int | None,
    ) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        if intent is None:
            raise ConflictError("the intent is gone")
        try:
            name = f"{intent.namespace}/{intent.pod}"
            whose = Owner(uid=intent.uid, attempt=attempt, user_id=user_id, name=name)
            job = await self._context.jobs.find_marked(whose)
        except SlurmUnavailableError:
            await observer.unavailable(intent)
            raise
        if job is None:
            # Should it come to Slurm all the same, its mark is of an attempt that is over: it is a stray.
            await self._store(replace(intent, attempt=attempt + 1, token_sha256=""))
        else:
            await self._submitted(intent, pods, job)

    async def exclude(self, action: ExcludeNodes) -> float | None:
        """Tell Slurm which nodes a job that waits must not get; return when to look again.

        It has started, or one of them is gone, where Slurm refuses: the next look tells.
        """
        self._context.check()
        try:
            await self._context.jobs.exclude(action.job, action.excluded)
        except SlurmRejectedError as error:
            log.info("nodes are not excluded", extra={"job": action.job, "error": str(error)})
            return LOOK_AGAIN_S
        return None

    async def _submitted(self, intent: PlacementState, pods: Sequence[Pod], job: int) -> None:
        claim = marks.claim(self._context.placeholder.key, intent.uid, intent.attempt, job)

        async def annotate(pod: Pod) -> None:
            self._context.check()
            try:
                await self._context.pods.annotate(pod, claim)
            except ConflictError:
                log.info("pod left while its job was submitted", extra={"pod": pod.key, "job": job})

        await each(pods, annotate)
        await self._store(replace(intent, job=job, changed=now(), reason=""))


def put_off(intent: PlacementState, reason: str, *, last: int | None = None) -> PlacementState:
    """Return *intent* withdrawn, to be tried again ever later; from attempt *last* on no later."""
    attempt = intent.attempt + 1 if last is None or tries(intent.attempt) < last else intent.attempt
    return replace(intent, attempt=attempt, token_sha256="", changed=now(), reason=reason[:REASON_MAX])
