"""The loop's way in: Pods of gangs are looked at with their gang, all others by themselves.

Whether a Pod is in a gang is decided once, by what is stored of it; a Pod that is new is asked about.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_events.requests import Finding
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler.adapters.ports import PodPort, WorkloadPort
from sunk_pod_scheduler.controller.executor import Executor
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.reconciler import Reconciler
from sunk_pod_scheduler.gang_controller.snapshotter import GangSnapshotter
from sunk_pod_scheduler.gangs.decide import decide_gang
from sunk_pod_scheduler.gangs.explain import explain_member
from sunk_pod_scheduler.gangs.model import GangAction, Notify, SubmitGang
from sunk_pod_scheduler.gangs.ownership import Pods
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.actions import Wait
from sunk_pod_scheduler.placement.gang_membership import ID_PREFIX, GangMembership, gang_options, membership
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, Limits
from sunk_pod_scheduler.placement.origins import Origins, of_pods
from sunk_pod_scheduler.placement.priority import requeue_after_s
from sunk_pod_scheduler.placement.transitions import is_another
from sunk_pod_scheduler.podspec.reading_cost import SLICE
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.clock import now
from sunk_runtime.errors import PermanentError
from sunk_runtime.tracing import acting
from sunk_runtime.views import StateView

log = logging.getLogger(__name__)

PER_MEMBER_S: Final = 0.0005
"""How long a gang is left alone, for each member, after a Pod of it has changed: thousands come one by one,
and a look costs a tenth of that for each."""
STEPS_MAX: Final = 16
"""More than the way from new Pods to bound ones has; a loop of steps would be a bug."""


class Enqueue(Protocol):
    """Has a key looked at."""

    def __call__(self, key: str, /, *, after_s: float = 0.0) -> None:
        """Look at *key* in *after_s* seconds, or before."""
        ...


class GangDispatcher:
    """Looks at gangs, and hands single Pods on."""

    def __init__(
        self,
        *,
        single: Reconciler,
        pods: PodPort,
        placements: StateView[PlacementState],
        slurm_jobs: StateView[SlurmJobState],
        mailbox: Mailbox,
        executor: Executor,
        snapshotter: GangSnapshotter,
        workloads: WorkloadPort,
        limits: Limits,
        key: bytes,
        enqueue: Enqueue,
    ) -> None:
        self._single = single
        self._pods = pods
        self._placements = placements
        self._slurm_jobs = slurm_jobs
        self._mailbox = mailbox
        self._executor = executor
        self._snapshotter = snapshotter
        self._workloads = workloads
        self._limits = limits
        self._key = key
        self._enqueue = enqueue
        self._has_learnt = False

    async def reconcile(self, key: str) -> float | None:
        """Look at a gang, at a single Pod, or have the gang of a Pod looked at."""
        if key.startswith(ID_PREFIX):
            return await self._turn(key)
        gang = await self._gang_of(key)
        if gang is None:
            self._snapshotter.index.leave(key)
            return await self._single.reconcile(key)
        self._snapshotter.index.know(gang, key)
        self._enqueue(gang, after_s=self._snapshotter.index.size_of(gang) * PER_MEMBER_S)
        return None

    def invalidate(self, key: str) -> None:
        """Look at the job of a Pod anew: something has happened to it. A gang's is looked at each time."""
        if not key.startswith(ID_PREFIX):
            self._single.invalidate(key)

    async def _turn(self, gang: str) -> float | None:
        """Bring a gang and its job as far as they get now; return when to look again."""
        try:
            for _ in range(STEPS_MAX):
                seen, pods = await self._snapshotter.look(gang)
                if seen.is_waiting:
                    seen = replace(seen, excluded=await self._executor.excluded(seen, pods))
                if len(seen.members) >= SLICE:
                    await checkpoint()  # Both what was and what comes takes its time.
                action = decide_gang(seen, now(), self._limits)
                if isinstance(action, SubmitGang):
                    uids = [member.uid for member in action.gang.members if not member.is_empty]
                    if not self._snapshotter.index.hold(gang, uids):
                        return ASK_AGAIN_S
                is_idle = isinstance(action, (Wait, Notify))
                with nullcontext() if is_idle else self._acting(action, gang, pods):
                    again_s = await self._executor.apply(action, seen, pods)
                if isinstance(action, Wait) and action.is_patient and again_s is not None:
                    return requeue_after_s(again_s, gang, self._snapshotter.index.known)
                if isinstance(action, (Wait, Notify)) or again_s is not None:
                    return again_s
                if is_another(seen.placement, self._placements.get(gang)):
                    self._mailbox.forget(gang)
                    self._mailbox.looked(gang)
            log.error("a gang took too many steps", extra={"gang": gang})
            return ASK_AGAIN_S
        finally:
            self._snapshotter.index.let_go(gang)
            self._mailbox.looked(gang)

    def _acting(self, action: GangAction, gang: str, pods: Pods) -> AbstractContextManager[None]:
        """Have it that what is done now names what led to it: of its Pods, the one that came or left last."""
        placement = self._placements.get(gang)
        job = None if placement is None else placement.job
        origins = Origins(
            pod=of_pods(pods.values()),
            placement=self._placements.event(gang),
            job=self._slurm_jobs.event(str(job)),
            announcement=self._mailbox.announcement(gang, job),
            is_pod_leaving=any(pod.is_terminating or pod.is_over for pod in pods.values()),
        )
        phase = None if placement is None else placement.phase
        return acting(f"Gang{type(action).__name__}", gang, origins.of(phase))

    async def _gang_of(self, uid: str) -> str | None:
        """Return the key of a Pod's gang; None where it is alone."""
        self._pods.require_complete()
        self._placements.require_complete()
        if (placement := self._placements.get(uid)) is not None:
            return placement.gang or None
        if not self._has_learnt:
            self._snapshotter.index.learn()
            self._has_learnt = True
        if seat := self._snapshotter.index.seat_of(uid):
            return seat
        pod = await self._pods.find(uid, "", "")
        if pod is None:
            return None
        found = membership(pod)
        claim = pod.metadata.annotations.get(ANNOTATION_JOB, "")
        if found is None or marks.read_claim(self._key, uid, claim) is not None:
            return None
        is_claimed = marks.read_claim(self._key, found.id, claim) is not None
        if not (is_claimed or await self._is_gang(found, pod)):
            return None
        return found.id

    async def _is_gang(self, found: GangMembership, pod: Pod) -> bool:
        if found.kind != "Job":
            return True
        agreed, _ = gang_options(pod.metadata.annotations)
        if agreed.size is not None:
            return True
        try:
            return await self._workloads.is_gang(found)
        except PermanentError as error:
            await self._pods.refuse(pod, PodReason.WORKLOAD_UNKNOWN, f"{found.title} cannot be read: {error}")
            raise

    async def explain(self, uid: str) -> tuple[Finding, ...]:
        """Return what the Pod's gang is to it; nothing where it is alone."""
        gang = await self._gang_of(uid)
        if gang is None:
            return ()
        self._snapshotter.index.know(gang, uid)
        seen, _ = await self._snapshotter.look(gang)
        return explain_member(seen, uid, now(), self._limits)
