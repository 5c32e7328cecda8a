"""The input and the result of a decision about a lock: values only.

Times are aware and in UTC. A *job* is a Slurm job id, a *node* a Slurm node unless it says ``kube_node``.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Final, Literal

import msgspec

from sunk_events.base import UNKNOWN, Cause, JobId, Moment
from sunk_events.locks import LockLevel, LockValue
from sunk_events.requests import BlockingPod
from sunk_kube.pods import Pod
from sunk_kube.wellknown import TAINT_LOCK, TAINT_LOCK_VALUE
from sunk_nodeset_controller.locks.daemon_claims import is_static


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a Node is locked for, as the Node's annotation keeps it."""

    job: JobId
    level: LockLevel
    requested_at: Moment = msgspec.field(name="asked")
    """When its prolog first asked, or when Slurm was first seen to run it here."""
    granted: Moment | None = None
    """When nothing was in its way; None while it waits."""
    ungranted: Moment | None = None
    """When its grant was forgotten, because the taint had gone."""

    @property
    def since(self) -> Moment:
        """Since when it waits, or waited last."""
        return self.ungranted or self.requested_at


class LockTaint(msgspec.Struct, frozen=True, kw_only=True):
    """The taint of a lock."""

    key: str = TAINT_LOCK
    value: str = TAINT_LOCK_VALUE
    effect: str = "NoExecute"
    """``NoExecute``: Kubernetes deletes Pods that do not tolerate it. ``NoSchedule``: we evict them."""

    @property
    def evicts(self) -> bool:
        """The taint alone removes no Pod."""
        return self.effect == "NoSchedule"


class Clearing(msgspec.Struct, frozen=True, kw_only=True):
    """How other Pods are removed if the taint does not do it, and which Pods may stay."""

    exempt_namespaces: frozenset[str] = frozenset()
    exempt_priority_classes: frozenset[str] = frozenset()
    are_daemons_exempt: bool = True
    """Pods of DaemonSets that exist, and those that the kubelet has from files."""
    delete_after_s: float | None = None
    """A Pod whose eviction is forbidden for this long is deleted; None: never."""
    is_dry_run: bool = False
    """Evictions are tried with the API server and not done."""

    def is_exempt(self, pod: Pod, *, is_daemon: bool) -> bool:
        """Whether *pod* may stay. *is_daemon*: it belongs to a DaemonSet that exists."""
        return (
            pod.metadata.namespace in self.exempt_namespaces
            or pod.spec.priority_class_name in self.exempt_priority_classes
            or (self.are_daemons_exempt and (is_daemon or is_static(pod)))
        )


Stand = Literal["off", "broken", "on"]
"""Neither annotation nor taint; one without the other; both."""


class NodeLock(msgspec.Struct, frozen=True, kw_only=True):
    """The lock that a Node has, or must have."""

    value: LockValue = "false"
    holders: tuple[Holder, ...] = ()
    """By job id."""
    is_tainted: bool = False
    has_old_taint: bool = False
    """The Node has a taint with our key from other settings. It is always removed."""

    @property
    def stand(self) -> Stand:
        """Whether all that makes a lock stands on the Node."""
        if self.is_tainted and self.value != "false":
            return "on"
        return "off" if self == OPEN else "broken"


OPEN: Final = NodeLock()
"""No lock."""


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A prolog that waits for its answer."""

    job: JobId
    level: LockLevel
    requested_at: datetime
    since: datetime | None = None
    """Since when it waits, if it asked before."""
    cause: Cause = UNKNOWN
    """The question."""


JobPlace = Literal["waiting", "running", "completing", "left"]
"""Where a job stands towards one node, as the bus has it: not started as far as is known; running or
suspended on it; ended but still holding it; over, or running without it."""


class JobSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What the bus says of a job, for one node."""

    place: JobPlace
    state: str
    """Slurm's word."""
    changed: datetime
    """When the job was first seen in this state."""
    event: Cause = UNKNOWN
    """The event by which it got into this state."""


class Blockers(msgspec.Struct, frozen=True, kw_only=True):
    """The Pods in the way, as ``namespace/name``, sorted; those of ``normal`` are in ``strict`` too."""

    normal: tuple[str, ...] = ()
    strict: tuple[str, ...] = ()
    until: datetime | None = None
    """When the kubelet ends the last of `normal`; None if one was not asked to go."""
    blocking: tuple[BlockingPod, ...] = ()
    """The first few with what keeps them."""
    is_unheard: bool = False
    """Some are in the way only because it is not known now whether their jobs run."""
    unasked: frozenset[JobId] = frozenset()
    """The jobs because of which other Pods may stay, although Slurm was not asked about them: no other
    job was to get the lock."""

    def of(self, level: LockLevel) -> tuple[str, ...]:
        """Return the Pods in the way of a lock of *level*."""
        return self.normal if level == "normal" else self.strict


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a decision about one Node's lock uses."""

    lock: NodeLock
    now: datetime
    event: Cause = UNKNOWN
    """The event of the last change of the lock."""
    requests: tuple[LockRequest, ...] = ()
    released: Mapping[int, datetime] = msgspec.field(default_factory=dict[int, datetime])
    """Jobs whose epilog has released this node, and when."""
    jobs: Mapping[int, JobSeen] = msgspec.field(default_factory=dict[int, JobSeen])
    """Each job that runs or completes here, is asked for, holds or was released; absent: not on the bus."""
    placeholders: Mapping[int, bool] = msgspec.field(default_factory=dict[int, bool])
    """Which of these jobs are placeholders, and whether their Pod may still be on this Node."""
    is_node_busy: bool = True
    """Slurm has a job on the node, or it is not known whether it has one."""
    observed: datetime | None = None
    """The newest sign on the bus that a syncer observes Slurm."""
    idle_since: datetime | None = None
    """Since when no job holds the lock, as far as this process has seen."""
    drained_for: tuple[str, ...] = ()
    """The Pods because of which a failed lock has drained the node."""
    way: Blockers | None = None
    """The Pods in the way, read after the taint was set; None: not read yet."""
    clear_since: Mapping[LockLevel, datetime] = msgspec.field(default_factory=dict[LockLevel, datetime])
    """Since when every look has found no Pod in the way; None if the last one found a Pod."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the lock. Durations in seconds."""

    linger_s: float = 5.0
    """How long a lock without a holder stays: the next task of an array then finds the Node locked."""
    late_s: float = 2.0
    """A prolog's call may come this much after its job was seen to end."""
    doubt_s: float = 10.0
    """A call for a job this soon after its release is older than the release, unless Slurm says otherwise."""
    clear_s: float = 0.0
    """How long no Pod may be in the way before a grant: the kubelet may admit a Pod despite a
    NoSchedule taint."""
    settled_s: float = 60.0
    """If Slurm, observed this long after the job came, does not have the job on the node, the job has
    left."""


class Step(Enum):
    """What is done next for one Node."""

    REST = "do nothing: there is no lock, and no job needs one"
    KEEP = "keep the lock, and take holders off that have left"
    CLOSE = "write annotation, taint and holders, then list the Pods"
    LOOK = "list the Pods on the Node"
    SETTLE = "grant the jobs that no Pod blocks; the other jobs wait"
    LINGER = "keep the lock for a moment, without a holder"
    OPEN = "remove annotation, taint and holders"
    WATCH = "there is no lock: list the Pods until the Pods that the node is drained for are gone"


class Granted(msgspec.Struct, frozen=True):
    """Answer to a prolog: the Node is locked."""


class Waiting(msgspec.Struct, frozen=True):
    """Answer to a prolog, at its deadline only: these Pods are in the way."""

    in_the_way: tuple[str, ...]
    blocking: tuple[BlockingPod, ...] = ()
    """The first few of them with what keeps them."""


class NotRunning(msgspec.Struct, frozen=True):
    """Answer to a prolog: its job no longer runs here."""

    state: str


class Unsure(msgspec.Struct, frozen=True):
    """Answer to a prolog: ask later. It is not known yet whether this call is older than the release."""


Answer = Granted | Waiting | NotRunning | Unsure


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a decision."""

    step: Step
    lock: NodeLock
    """The lock that the Node must have. If the Node has it already, nothing is written."""
    answers: Mapping[int, Answer] = msgspec.field(default_factory=dict[int, Answer])
    """Answers by job. They are true only once the Node has *lock*."""
    in_the_way: tuple[str, ...] = ()
    """The Pods that are published on the bus: those that block a waiting job, that came later, or that
    keep a drain."""
    leaving: int = 0
    """How many Pods a waiting job waits for."""
    leaving_until: datetime | None = None
    """When the kubelet ends the last of them, if all were asked to go."""
    is_drained: bool = False
    """No job needs the lock, but the node is drained because of Pods that are watched and may stay."""
    again_s: float | None = None
    """Seconds until the next look, even if nothing changes."""
    idle_since: datetime | None = None
