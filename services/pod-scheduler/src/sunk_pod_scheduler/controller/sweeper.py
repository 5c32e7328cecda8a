"""Jobs with our mark that are nobody's any more: they are cancelled, be they a Pod's or a gang's.

What must stay true: none is cancelled while its Pod is on a Node and does not say that it has another.
"""

import logging
from collections.abc import Callable

from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler import metrics
from sunk_pod_scheduler.adapters.ports import JobPort, PodPort
from sunk_pod_scheduler.placement import marks, orphans
from sunk_pod_scheduler.placement.gang_membership import ID_PREFIX
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S
from sunk_pod_scheduler.placement.marks import Mark
from sunk_pod_scheduler.placement.model import JobSeen
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.views import StateView

log = logging.getLogger(__name__)


class Sweeper:
    """Looks at jobs with our mark."""

    def __init__(
        self,
        *,
        pods: PodPort,
        jobs: JobPort,
        placements: StateView[PlacementState],
        slurm_jobs: StateView[SlurmJobState],
        key: bytes,
        check: Callable[[], None],
    ) -> None:
        self._pods = pods
        self._jobs = jobs
        self._placements = placements
        self._slurm_jobs = slurm_jobs
        self._key = key
        self._check = check
        self._copied: set[str] = set()
        """Of which Pods it was said that their job's mark is copied: once, to however many jobs it is."""

    @property
    def remembered(self) -> int:
        """Of how many Pods something is remembered beside what is stored."""
        return len(self._copied)

    async def sweep(self, key: str) -> float | None:
        """Cancel the job *key* if it carries our mark and is nobody's."""
        job, state = int(key), self._slurm_jobs.get(key)
        if state is None or state.is_over:
            return None
        mark = marks.read_extra(self._key, state.extra, state.user_id)
        if mark is None:
            return None
        self._placements.require_complete()
        self._pods.require_complete()
        pod = await self._claimant(job, mark)
        text = "" if pod is None else pod.metadata.annotations.get(ANNOTATION_JOB, "")
        claim = marks.read_claim(self._key, mark.uid, text)
        is_on_node = pod is not None and pod.metadata.uid == mark.uid and _is_on_node(pod)
        match orphans.judge(job, mark, self._placements.get(mark.uid), claim, is_on_node=is_on_node):
            case "ours":
                pass
            case "doubled":
                self._report_copied_mark(job, mark, pod)
            case "undecided":
                return ASK_AGAIN_S
            case "unclaimed":
                if pod is not None:
                    await self._claim_again(job, mark, pod)
                return ASK_AGAIN_S
            case "stray":
                await self._cancel(job, mark)
                return ASK_AGAIN_S
        return None

    async def _claimant(self, job: int, mark: Mark) -> Pod | None:
        """Return the Pod whose claim to *job* counts; of a gang any: with the bucket lost only Pods tell.

        A member that has left its Node needs no job: else one whose Pods are all over would never end.
        """
        if mark.uid.startswith(ID_PREFIX):
            return next(iter(self._pods.claiming(job, mark.uid)), None)
        namespace, _, name = mark.pod.partition("/")
        return await self._pods.find(mark.uid, namespace, name)

    def _report_copied_mark(self, job: int, mark: Mark, pod: Pod | None) -> None:
        """Say that *job* carries the mark of another job's Pod: copied, so nothing is done to it."""
        metrics.DOUBLED.inc()
        log.error("a job has the mark of another", extra={"job": job, "pod": mark.pod})
        if pod is None or pod.metadata.uid != mark.uid or mark.uid in self._copied:
            return
        self._copied = {uid for uid in self._copied if self._placements.get(uid) is not None} | {mark.uid}
        text = f"Slurm job {job} has the mark of {pod.key}'s job"
        self._pods.warn(pod, PodReason.MARK_COPIED, text)

    async def _claim_again(self, job: int, mark: Mark, pod: Pod) -> None:
        """Write on *pod* that *job* is its, if that runs and its AdminComment says so too.

        No user can write that. The Pod is adopted then, as after any loss of its placement.
        """
        whose = Owner(uid=mark.uid, attempt=mark.attempt, name=pod.key)
        found = await self._jobs.look(job, whose)
        if not isinstance(found, JobSeen) or not (found.is_running and found.is_marked and found.is_ours):
            return
        self._check()
        await self._pods.annotate(pod, marks.claim(self._key, mark.uid, mark.attempt, job))
        log.warning("job is written on its pod again", extra={"job": job, "pod": pod.key})

    async def _cancel(self, job: int, mark: Mark) -> None:
        """Cancel a stray, if a fresh look shows that it is there and still carries the same mark."""
        whose = Owner(uid=mark.uid, attempt=mark.attempt)
        found = await self._jobs.look(job, whose)
        if not isinstance(found, JobSeen) or found.is_over:
            return
        await self._jobs.cancel(job, whose)
        metrics.ORPHANS.inc()
        log.warning("stray job cancelled", extra={"job": job})


def _is_on_node(pod: Pod) -> bool:
    """Whether something of *pod* may run on a Node."""
    return bool(pod.spec.node_name) and not pod.has_left
