"""One turn of the loop: look at one Pod, decide, carry out, look again, until there is nothing to do now."""

import logging
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.base import UNKNOWN
from sunk_events.locks import LockState
from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_pod_scheduler.adapters.ports import JobPort, PodPort
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Views
from sunk_pod_scheduler.controller.executor import Executor
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.placement_index import PlacementIndex
from sunk_pod_scheduler.placement import job_on_bus, lost_jobs
from sunk_pod_scheduler.placement.actions import Action, Forget, Wait
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.heartbeat import are_many
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, Limits
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, Observed, PodSeen, pod_seen
from sunk_pod_scheduler.placement.node_filter import problem, without_jobs
from sunk_pod_scheduler.placement.origins import Origins, of_pod
from sunk_pod_scheduler.placement.ownership import Owner, believed, owner
from sunk_pod_scheduler.placement.priority import requeue_after_s
from sunk_pod_scheduler.placement.transitions import after, is_another
from sunk_pod_scheduler.podspec.validation import Rules
from sunk_runtime.clock import now
from sunk_runtime.tracing import acting
from sunk_runtime.views import StateView

log = logging.getLogger(__name__)

STEPS_MAX: Final = 12
"""More than the way from a new Pod to a bound one has; a loop of steps would be a bug."""


FRESH: Final = timedelta(seconds=5)
"""A look at a job that is older is taken anew at the next turn. Not within a turn, however long its calls
take: then each look would make the calls of all others take longer, and so their looks be too old."""


_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class Reconciler:
    """Looks at Pods that are placed alone."""

    def __init__(
        self,
        *,
        pods: PodPort,
        jobs: JobPort,
        placements: StateView[PlacementState],
        bus_jobs: BusJobs,
        takers: NodeTakers,
        views: Views,
        mailbox: Mailbox,
        executor: Executor,
        rules: Rules,
        limits: Limits,
        key: bytes,
    ) -> None:
        self._pods = pods
        self._jobs = jobs
        self._placements = placements
        self._placement_index = PlacementIndex(placements)
        self._bus_jobs = bus_jobs
        self._takers = takers
        self._views = views
        self._mailbox = mailbox
        self._executor = executor
        self._rules = rules
        self._limits = limits
        self._key = key
        self._looks: dict[str, tuple[datetime, JobSeen]] = {}
        """The last looks at jobs, and when they were taken."""
        self._stirred: dict[str, datetime] = {}
        """When something last happened to a Pod's job: what was seen before is worth nothing."""
        self._shown: dict[str, tuple[Pod, PodSeen]] = {}
        """What Pods are as they decide, while it is their turn: each step asks for it."""

    async def reconcile(self, uid: str) -> float | None:
        """Bring the Pod *uid* and its job as far as they get now; return when to look again."""
        turn = now()
        try:
            for _ in range(STEPS_MAX):
                looked, known = self._known(uid, turn)
                seen, pod = await self._observe(uid, known)
                if pod is not None and seen.pod is not None:
                    self._shown[uid] = pod, seen.pod
                self._looks.pop(uid, None)
                action = decide(seen, now(), self._limits)
                with nullcontext() if isinstance(action, Wait) else self._acting(action, seen, pod):
                    again_s = await self._executor.apply(action, seen, {} if pod is None else {uid: pod})
                if (left := after(action, seen, self._placements.get(uid))) is not None:
                    self._looks[uid] = looked, left
                if isinstance(action, Wait) and action.is_patient and again_s is not None:
                    return requeue_after_s(again_s, uid, len(self._placements))
                if isinstance(action, Wait) or again_s is not None:
                    return again_s
                if is_another(seen.placement, self._placements.get(uid)):
                    self._mailbox.forget(uid)
                    self._mailbox.looked(
                        uid
                    )  # What is next takes its time, and the script of the last waits.
                if isinstance(action, Forget):
                    self._stirred.pop(uid, None)
            log.error("a pod took too many steps", extra={"uid": uid})
            return ASK_AGAIN_S
        finally:
            self._shown.pop(uid, None)
            if self._placements.get(uid) is None:
                self._stirred.pop(uid, None)
            self._mailbox.looked(uid)

    def _acting(self, action: Action, seen: Observed, pod: Pod | None) -> AbstractContextManager[None]:
        """Have it that what is done now names what led to it."""
        uid, placement = seen.uid, self._placements.get(seen.uid)
        job = None if placement is None else placement.job
        origins = Origins(
            pod=UNKNOWN if pod is None else of_pod(pod),
            placement=self._placements.event(uid),
            job=self._bus_jobs.event(job),
            announcement=self._mailbox.announcement(uid, job),
            is_pod_leaving=seen.pod is None or seen.pod.is_terminating or seen.pod.is_over,
        )
        return acting(type(action).__name__, uid, origins.of(None if placement is None else placement.phase))

    @property
    def remembered(self) -> int:
        """Of how many Pods something is remembered beside what is stored."""
        return len({*self._looks, *self._stirred, *self._shown})

    def invalidate(self, uid: str) -> None:
        """Look at the Pod's job anew: something has happened to it."""
        self._stirred[uid] = now()

    def _known(self, uid: str, turn: datetime) -> tuple[datetime, JobSeen | None]:
        """Return the Pod's job as it was lately, unless somebody says that it has gone on, and when that was.

        One that was written to is as it was before but for what was written: Slurm refuses one that is over.
        """
        moment = now()
        looked, job = self._looks.get(uid, (moment, None))
        placement = self._placements.get(uid)
        if (
            placement is None
            or placement.job is None
            or self._mailbox.is_release_requested(uid, placement.job)
        ):
            return moment, None
        if job is not None and (job.job != placement.job or turn - looked > FRESH):
            job = None
        if looked <= self._stirred.get(uid, _LONG_AGO):
            job = None
        node, state = self._mailbox.announced_on(uid, placement.job), self._bus_jobs.get(placement.job)
        if node and (job is None or not job.is_running):
            return moment, job_on_bus.announced(state, self._owner(uid, placement), node, self._key)
        if (
            job is None
            and self._mailbox.heartbeat(uid, placement.job) != "cut"
            and self._bus_jobs.is_current(moment)
        ):
            is_first = uid not in self._looks
            return moment, job_on_bus.expected(
                state, placement, self._owner(uid, placement), self._key, is_first=is_first
            )
        return looked, job

    def _owner(self, uid: str, placement: PlacementState) -> Owner:
        """Return whose the placement's job is, by the Pod as watched: without it, the mark alone tells."""
        pod = self._shown.get(uid)
        return owner(Observed(uid=uid, pod=None if pod is None else pod[1], placement=placement))

    async def look(self, uid: str) -> Observed:
        """Return all that is known of the Pod *uid* now, from a fresh look at its job."""
        seen, _ = await self._observe(uid)
        return seen

    async def _observe(self, uid: str, known: AnyJob | None = None) -> tuple[Observed, Pod | None]:
        self._pods.require_complete()
        self._placements.require_complete()
        placement = self._placements.get(uid)
        namespace, name = (placement.namespace, placement.pod) if placement else ("", "")
        pod = await self._pods.find(uid, namespace, name)
        shown = None if pod is None else self._as_it_decides(pod)
        stored = placement
        if shown is not None:
            placement = believed(stored, shown.claim, is_bound=bool(shown.kube_node))
        if placement is not stored:
            known = None  # The Pod remembers what the bus has lost.
        given_away = await self._given_away(placement, shown)  # Before the look: others' take their time.
        whose = owner(Observed(uid=uid, pod=shown, placement=placement))
        job = known or await self._job(placement, shown, whose)
        if isinstance(job, JobGone) and shown is not None and placement is not None:
            job = await self._fate(job, shown, placement, whose)
        announced_on = self._mailbox.announced_on(uid, placement.job) if placement else ""
        kube_node, why = self._node(placement.node if placement else "", pod, shown)
        seen = Observed(
            uid=uid,
            pod=shown,
            placement=placement,
            is_overtaken=placement is not stored,
            job=job,
            announced_on=announced_on,
            ungranted=self._ungranted(uid, placement, shown, job, has_begun=bool(announced_on)),
            kube_node=kube_node,
            slurm_node=self._slurm_node(shown.kube_node)
            if shown and not (placement and placement.node)
            else "",
            node_problem=why,
            has_old_number=lost_jobs.has_old_number(job, placement, self._placement_index.of_number, now()),
            given_away=given_away,
            is_release_requested=placement is not None
            and self._mailbox.is_release_requested(
                uid, placement.job, is_alive=isinstance(job, JobSeen) and job.is_alive
            ),
            heartbeat=self._mailbox.heartbeat(uid, placement.job) if placement else "",
            listening=self._mailbox.since,
            are_many_silent=bool(placement and placement.silent) and are_many(self._placements.values()),
        )
        if pod is not None and seen.is_waiting:
            seen = replace(seen, excluded=await self._executor.excluded(seen, {uid: pod}))
        return seen, pod

    def _as_it_decides(self, pod: Pod) -> PodSeen:
        before = self._shown.get(pod.metadata.uid)
        if before is not None and before[0] is pod:
            return before[1]
        return pod_seen(pod, self._key, self._rules)

    async def _job(self, placement: PlacementState | None, pod: PodSeen | None, whose: Owner) -> AnyJob:
        if placement is not None:
            number = placement.job
        else:
            number = pod.claim.job if pod is not None and pod.claim is not None else None
        if number is None or (placement is None and pod is not None and self._has_ended(number, pod)):
            return JobGone()
        return await self._jobs.look(number, whose)

    def _has_ended(self, number: int, pod: PodSeen) -> bool:
        """Whether a Pod that is over, of which nothing is stored, has no job any more, by what the bus says.

        Such Pods stay for as long as their owners like: none of them costs a look at each resync.
        """
        state = self._bus_jobs.get(number)
        return pod.is_finished and (state is None or state.is_over) and self._bus_jobs.is_current(now())

    async def _fate(self, job: JobGone, pod: PodSeen, placement: PlacementState, whose: Owner) -> JobGone:
        if placement.job is None or not lost_jobs.is_in_doubt(pod, placement, job):
            return job
        return await self._jobs.outcome_of(job, placement.job, whose, lost_jobs.ran(placement))

    async def _given_away(self, placement: PlacementState | None, pod: PodSeen | None) -> str:
        if placement is None or pod is None or pod.size is None or not pod.kube_node:
            return ""
        return await self._takers.find(placement, {placement.node: pod.size})

    def _node(self, slurm_node: str, pod: Pod | None, shown: PodSeen | None) -> tuple[str, str]:
        """Return the Node of a Slurm node, and why *pod* may not be bound to it."""
        state = self._views.kube_pods.get(slurm_node) if slurm_node else None
        node = None if state is None else self._pods.node(state.kube_node)
        if state is None or node is None:
            return "", ""
        if pod is None:
            return state.kube_node, ""
        requested = None if shown is None else shown.requested
        why = problem(pod, node, self._pods.holders, slurm_node, requested)
        return state.kube_node, why or without_jobs(slurm_node, self._placement_index.nodes_without_jobs())

    def _ungranted(
        self,
        uid: str,
        placement: PlacementState | None,
        pod: PodSeen | None,
        job: AnyJob,
        *,
        has_begun: bool,
    ) -> tuple[LockState, ...] | None:
        """Return the locks that a Pod waits for; one that is bound is not asked about."""
        if placement is None or pod is None or pod.kube_node:
            return ()
        has_begun = has_begun or placement.phase == "started"
        return self._views.locks.ungranted(uid, job, has_begun=has_begun)

    def _slurm_node(self, kube_node: str) -> str:
        states = self._views.kube_pods.values() if kube_node else ()
        return next((state.pod for state in states if state.kube_node == kube_node), "")
