"""What the scheduler sees of one Pod. Values only.

The job is one of three: seen in a fresh look, known to be gone, or unknown because nobody could say.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

from sunk_events.locks import LockState
from sunk_events.placements import PlacementState
from sunk_kube.objects import condition
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.marks import Claim, Mark
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_pod_scheduler.podspec.job_size import Held, Size, held
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, grace_s, size, validate
from sunk_slurm import hostlist
from sunk_slurm.wire import Job


class PodSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that names us as its scheduler, or did so while its name was ours."""

    namespace: str
    name: str
    is_served: bool = True
    """False: its ``spec.schedulerName`` is not ours any more, so another scheduler may place it."""
    created: datetime | None = None
    kube_node: str = ""
    """The Node that it is bound to."""
    is_terminating: bool = False
    outstays: bool = False
    """It is being deleted with a longer grace than its spec has, which alone was looked at."""
    is_over: bool = False
    """Succeeded or failed."""
    still_runs: bool = False
    """It is over, and yet a container is shown to run."""
    is_gated: bool = False
    exit_code: int = 0
    claim: Claim | None = None
    """Our annotation, if it is ours."""
    is_reported_lost: bool = False
    """Its condition says that it runs without a job, because we said so."""
    problems: tuple[str, ...] = ()
    """Why it cannot be passed to Slurm."""
    priority: int | None = None
    """What it asks its job to have; None: what Slurm computes."""
    user_id: int | None = None
    """The Slurm user that it asks for; None where something is wrong with it."""
    requested: JobOptions | None = None
    """Likewise all else that it asks of Slurm."""
    size: Size | None = None
    """What it takes of its node; None where that cannot be counted."""

    @property
    def is_finished(self) -> bool:
        """Its Node has no more of it, though a finalizer may keep its object."""
        return self.is_over and not (self.is_terminating and self.still_runs)


class JobSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm job, freshly looked at, or as the bus tells it."""

    job: int
    base: str
    """The base state."""
    is_from_bus: bool = False
    """The bus tells it: its state is as it was stored, why it waits may be old."""
    is_completing: bool = False
    is_over: bool = False
    is_held: bool = False
    reason: str = ""
    """Slurm's word for why it waits."""
    description: str = ""
    """More of it in Slurm's own words, where it has any."""
    priority: int | None = None
    nodes: tuple[str, ...] = ()
    held: Held | None = None
    """What it holds on them; None where that is not known."""
    excluded: str | None = None
    """The nodes that it must not get, as we spelled them; None where that is not known."""
    submitted: datetime | None = None
    """When Slurm took it, or last requeued it: with its number that tells which job it is."""
    is_requeued: bool = False
    """Placeholders are only if slurmd has not acknowledged their launch, or if their user sees to it."""
    started: datetime | None = None
    """When its prolog began; of a job that waits: when backfill expects to start it, if it has planned it."""
    ended: datetime | None = None
    is_preempted: bool = False
    """Another job has taken its place: it ends within its grace."""
    is_marked_started: bool = False
    extra: str = ""
    name: str = ""
    user_id: int = 0
    admin_comment: str = ""
    mark: Mark | None = None
    """The Pod that it is a placeholder of, as its Extra says and our signature proves."""
    is_marked: bool = True
    """False: its user has wiped or written over the mark, or never had it; nothing may be done to it."""
    is_ours: bool = False
    """Its AdminComment says that it is the Pod's, whatever became of its mark: it may be ended."""

    @property
    def is_started_by_us(self) -> bool:
        """We have said that its script has announced itself: its user can write that, but no AdminComment."""
        return self.is_marked_started and self.is_ours

    @property
    def is_the_pods(self) -> bool:
        """It is the Pod's for sure, so that we may end it."""
        return self.is_marked or self.is_ours

    @property
    def is_running(self) -> bool:
        """It holds its nodes and its script may run."""
        return self.base == "RUNNING" and not self.is_completing

    @property
    def is_alive(self) -> bool:
        """It waits or holds its nodes, and Slurm has not begun to end it."""
        return not self.is_over and not self.is_completing

    @property
    def is_gone(self) -> bool:
        """It is over, and nothing of it is left on a node."""
        return self.is_over and not self.is_completing


class JobGone(msgspec.Struct, frozen=True):
    """slurmctld does not know the job, or there is none."""

    has_ended: bool = False
    """It was seen to end before slurmctld forgot it."""
    is_taken: bool = False
    """Its number is another's job."""
    is_lost: bool = False
    """slurmctld has lost its state, as its other jobs or accounting show."""
    is_forgotten: bool = False
    """slurmctld has one that came after it, while it was there, so it has lost neither: this one ended."""


class JobUnknown(msgspec.Struct, frozen=True):
    """Nobody could say."""


HeartbeatState = Literal["", "cut", "heard"]
"""What was last said of a placeholder's script: its poll was cut, or it was heard afterwards."""

AnyJob = JobSeen | JobGone | JobUnknown


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a placement and its job: of one Pod's, or of a gang's."""

    uid: str
    """The Pod's, or the gang's key."""
    placement: PlacementState | None = None
    is_overtaken: bool = False
    """Something else is stored, of before a job that the Pods claim: it counts for nothing."""
    job: AnyJob = JobGone()
    """The placement's job, or the one that the Pods claim where there is no placement."""
    announced_on: str = ""
    """The Slurm node whose placeholder's script, with the right token, has announced itself."""
    has_old_number: bool = False
    """Its job, which is held, has the number of a lost one that may be on a node yet."""
    given_away: str = ""
    """The jobs that Slurm has given a node of Pods that run without a job; empty: none."""
    is_release_requested: bool = False
    """The placeholder's script or its node's epilog wants the Pods gone."""
    ungranted: tuple[LockState, ...] | None = ()
    """While a Pod of it is not bound: the locks of its job's nodes that this run of the job has not been
    granted; None where nobody can say. A node without a lock on the bus has nobody who locks it."""
    excluded: str | None = None
    """The nodes that its job, which waits, must not get as things are now; None where nobody can say."""
    heartbeat: HeartbeatState = ""
    """What was last said of the placeholder's script."""
    listening: datetime | None = None
    """Since when the leader receives calls; None: always."""
    are_many_silent: bool = False
    """It is silent, and so are more others than die at once."""

    @property
    def is_waiting(self) -> bool:
        """Its job waits for nodes, and which of them it must not get can be told to Slurm."""
        is_placing = self.placement is not None and self.placement.lost is None
        job = self.job
        return is_placing and isinstance(job, JobSeen) and job.base == "PENDING" and job.excluded is not None


class Observed(Seen, frozen=True, kw_only=True):
    """All that is known of one Pod."""

    pod: PodSeen | None = None
    """None: there certainly is no such Pod any more."""
    kube_node: str = ""
    """The Node of the placeholder's Slurm node; empty while it is not known."""
    slurm_node: str = ""
    """Where no node is stored of a Pod that is on a Node: the Slurm node of that Node."""
    node_problem: str = ""
    """Why the Pod may not be bound to that Node."""


# --- From what the servers say --------------------------------------------------------------------

CONDITION_SLURM_JOB_LOST: Final = "SlurmJobLost"
"""True while a Pod runs without a job that Slurm knows."""
HELD_REASONS: Final = frozenset({"JobHeldUser", "JobHeldAdmin"})
FAILED_EXIT_CODE: Final = 1


def pod_seen(
    pod: Pod, key: bytes, rules: Rules, validated: ValidatedPod | tuple[str, ...] | None = None
) -> PodSeen:
    """Return what of *pod* decides; *validated*: what it asks for by *rules*, if that is known already."""
    meta = pod.metadata
    found = validate(pod, rules) if validated is None else validated
    ours = rules.pod_scope
    job_lost = condition(pod.status.conditions, CONDITION_SLURM_JOB_LOST)
    return PodSeen(
        namespace=meta.namespace,
        name=meta.name,
        is_served=ours is None or ours.has(pod.spec.scheduler_name, meta.namespace),
        created=meta.creation_timestamp,
        kube_node=pod.spec.node_name,
        is_terminating=pod.is_terminating,
        outstays=pod.is_terminating and (meta.deletion_grace_period_seconds or 0) > grace_s(pod.spec),
        is_over=pod.is_over,
        still_runs=pod.still_runs,
        is_gated=bool(pod.spec.scheduling_gates),
        exit_code=_exit_code(pod),
        is_reported_lost=job_lost is not None and job_lost.status == "True",
        claim=marks.read_claim(key, meta.uid, meta.annotations.get(ANNOTATION_JOB, "")),
        problems=found if isinstance(found, tuple) else (),
        priority=_priority(found) if isinstance(found, ValidatedPod) else None,
        user_id=found.identity.user_id if isinstance(found, ValidatedPod) else None,
        requested=found.requested if isinstance(found, ValidatedPod) else None,
        size=_size(found) if isinstance(found, ValidatedPod) else size(pod.spec, rules),
    )


def _size(wanted: ValidatedPod) -> Size:
    return Size(cpus=wanted.cpus, memory_mib=wanted.memory_mib, gpus=wanted.gpus)


def _priority(wanted: ValidatedPod) -> int | None:
    return wanted.requested.priority.value if wanted.requested.priority else None


def _exit_code(pod: Pod) -> int:
    """Return 0 for a Pod that succeeded, else the first code that a container failed with."""
    if pod.status.phase != "Failed":
        return 0
    ended = [status.state.terminated for status in pod.status.container_statuses]
    codes = [found.exit_code for found in ended if found is not None and found.exit_code]
    return codes[0] if codes else FAILED_EXIT_CODE


def job_seen(job: Job, key: bytes) -> JobSeen:
    """Return what of *job* decides; *key*: of our marks."""
    state = job.state_now
    return JobSeen(
        job=job.job_id,
        base=state.base,
        is_completing=state.is_completing,
        is_over=state.is_over,
        is_held=state.is_pending and job.state_reason in HELD_REASONS,
        reason=job.state_reason,
        description=job.state_description,
        priority=job.priority.value,
        nodes=hostlist.expand(job.nodes),
        held=held(job),
        excluded=job.excluded_nodes,
        submitted=job.submit_time.moment,
        is_requeued=job.restart_cnt > 0,
        started=job.start_time.moment,
        ended=job.end_time.moment,
        is_preempted=job.preempt_time.moment is not None,
        is_marked_started=marks.is_started(job.extra),
        extra=job.extra,
        admin_comment=job.admin_comment,
        name=job.name,
        user_id=job.user_id,
        mark=marks.read_extra(key, job.extra, job.user_id),
    )
