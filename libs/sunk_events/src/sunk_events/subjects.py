"""The only place that spells a subject, a stream, a bucket or a key.

The class stands second, so that no stream can ever capture a question::

    sunk.ev.<cluster>.<system>.<kind>.<id>.<fact>     facts, in the stream SUNK_EV_<cluster>
    sunk.rpc.<cluster>.<system>.<kind>.<id>.<verb>    questions, in no stream
    sunk.dlq.<cluster>.<service>.<what>.<id>          dead letters, in the stream SUNK_DLQ

States are keys of buckets, one bucket a kind and cluster.
"""

import hashlib
import re
from typing import Final

import msgspec

from sunk_events import dead, hooks, jobs, locks, nodes, nodesets, placements, requests
from sunk_events.base import Event, Request, State

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED: Final = re.compile(r"=([0-9A-F]{2})")

_FACT: Final[dict[type[Event], tuple[str, str]]] = {
    nodes.NodeRegistered: ("slurm.node", "registered"),
    nodes.NodeRemoved: ("slurm.node", "removed"),
    nodes.NodeDraining: ("slurm.node", "draining"),
    nodes.NodeDrained: ("slurm.node", "drained"),
    nodes.NodeUndrained: ("slurm.node", "undrained"),
    nodes.NodeDown: ("slurm.node", "down"),
    nodes.NodeUp: ("slurm.node", "up"),
    nodes.NodeNotResponding: ("slurm.node", "not_responding"),
    nodes.NodeResponding: ("slurm.node", "responding"),
    nodes.NodeAllocated: ("slurm.node", "allocated"),
    nodes.NodeIdle: ("slurm.node", "idle"),
    nodes.NodeExtraReplaced: ("slurm.node", "extra_replaced"),
    jobs.JobSubmitted: ("slurm.job", "submitted"),
    jobs.JobStarted: ("slurm.job", "started"),
    jobs.JobRequeued: ("slurm.job", "requeued"),
    jobs.JobHeld: ("slurm.job", "held"),
    jobs.JobReleased: ("slurm.job", "released"),
    jobs.JobCompleting: ("slurm.job", "completing"),
    jobs.JobEnded: ("slurm.job", "ended"),
    nodesets.PodReady: ("kube.pod", "ready"),
    nodesets.PodNotReady: ("kube.pod", "not_ready"),
    nodesets.PodCondemned: ("kube.pod", "condemned"),
    nodesets.PodSpared: ("kube.pod", "spared"),
    nodesets.PodTerminating: ("kube.pod", "terminating"),
    nodesets.PodGone: ("kube.pod", "gone"),
    nodesets.NodeCordoned: ("kube.node", "cordoned"),
    nodesets.NodeUncordoned: ("kube.node", "uncordoned"),
    nodesets.NodeVerified: ("kube.node", "verified"),
    nodesets.NodeRebootRequested: ("kube.node", "reboot_requested"),
    locks.LockPending: ("lock.node", "pending"),
    locks.LockLocked: ("lock.node", "locked"),
    locks.LockUnlocked: ("lock.node", "unlocked"),
    placements.PlacementRefused: ("placement.pod", "refused"),
    placements.PlacementSubmitted: ("placement.pod", "submitted"),
    placements.PlacementStarted: ("placement.pod", "started"),
    placements.PlacementBound: ("placement.pod", "bound"),
    placements.PlacementOverdue: ("placement.pod", "overdue"),
    placements.PlacementEnded: ("placement.pod", "ended"),
    hooks.PrehookCalled: ("hook.node", "prehook_called"),
    hooks.ReleaseCalled: ("hook.node", "release_called"),
    hooks.StartedCalled: ("hook.job", "started_called"),
    hooks.PlacementReleaseCalled: ("hook.job", "placement_release_called"),
    hooks.RebootCalled: ("hook.node", "reboot_called"),
    hooks.NodeNudgeCalled: ("hook.node", "nudge_called"),
    hooks.JobNudgeCalled: ("hook.job", "nudge_called"),
}

_QUESTION: Final[dict[type[Request], tuple[str, str, str]]] = {
    requests.AcquireLock: ("lock.node", "node", "acquire"),
    requests.ReleaseLock: ("lock.node", "node", "release"),
    requests.ConfirmNode: ("slurm.node", "node", "confirm"),
    requests.ConfirmJobs: ("slurm.node", "node", "confirm_jobs"),
    requests.NudgeNode: ("slurm.node", "node", "nudge"),
    requests.NudgeJob: ("slurm.job", "job", "nudge"),
    requests.PlacementAnnounced: ("placement.job", "job", "started"),
    requests.PlacementSilent: ("placement.job", "job", "silent"),
    requests.ReleasePlacement: ("placement.job", "job", "release"),
    requests.RebootNode: ("kube.node", "node", "reboot"),
    requests.RequeueJob: ("slurm.job", "job", "requeue"),
    requests.ExplainSlurmNode: ("slurm.node", "node", "explain"),
    requests.ExplainJob: ("slurm.job", "job", "explain"),
    requests.ExplainJobToOwner: ("slurm.job", "job", "explain_to_owner"),
    requests.ExplainKubeNode: ("kube.node", "node", "explain"),
    requests.ExplainPlacement: ("placement.pod", "pod", "explain"),
}

_BUCKET: Final[dict[type[State], str]] = {
    nodes.SlurmNodeState: "slurm_node",
    nodes.SlurmPartitionState: "slurm_partition",
    nodes.SlurmReservationState: "slurm_reservation",
    nodes.SlurmStatisticsState: "slurm_statistics",
    jobs.SlurmJobState: "slurm_job",
    nodesets.KubePodState: "kube_pod",
    nodesets.NodeSliceState: "node_slice",
    nodesets.KubeWatchState: "kube_watch",
    locks.LockState: "lock",
    placements.PlacementState: "placement",
}

EVERYTHING: Final = "sunk.ev.>"
"""What other teams subscribe to."""
DEAD_LETTER_STREAM: Final = "SUNK_DLQ"
DEAD_LETTERS: Final = "sunk.dlq.>"
GROWN_STREAM: Final = "SUNK_GROWN"
"""It exists where every stream of one NATS server has been copied to three. Nothing is stored in it."""
GROWN: Final = "sunk.grown"
STATISTICS_KEY: Final = "scheduler"
LEADER_KEY: Final = "leader"
_INBOXES: Final = "_INBOX"

DEAD_NAME_MAX: Final = 1024
"""Characters of a dead letter's last token. It is escaped twice, and a server ends a client's connection
for a line of over 4,096 bytes."""


def token(value: str) -> str:
    """Escape *value* so that it is one subject token and one key.

    Kubernetes names may hold dots, and NATS splits on dots; ``=`` is legal in keys, ``%`` is not.

    A name of 253 characters becomes 253 where all are plain, 759 where none is (ASCII), 3,036 at the very
    worst (each of four bytes): with all that stands around it still one line that NATS takes.

        >>> token("ip-10.ec2")
        'ip-10=2Eec2'

    Raises:
        ValueError: *value* is empty, which is no token.
    """
    if not value:
        raise ValueError("an empty name is not a subject token")
    return _UNSAFE.sub(lambda found: "".join(f"={byte:02X}" for byte in found[0].encode()), value)


def from_token(value: str) -> str:
    """Return what `token` escaped.

    Raises:
        ValueError: *value* holds an escape that is no UTF-8.
    """
    raw = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), value)
    return raw.encode("latin-1").decode()


def fact(cluster: str, event: Event) -> str:
    """Return the subject that *event* is published on."""
    if isinstance(event, dead.DeadLetter):
        return f"sunk.dlq.{cluster}.{token(event.source.rpartition('/')[2])}.message.{_cut(event.subject)}"
    place, what = _FACT[type(event)]
    return f"sunk.ev.{cluster}.{place}.{token(event.subject)}.{what}"


def _cut(name: str) -> str:
    """Return *name* as a token that is not too long; what was cut is told apart by a digest."""
    whole = token(name)
    if len(whole) <= DEAD_NAME_MAX:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return f"{whole[: DEAD_NAME_MAX - len(digest) - 1]}-{digest}"


def misfit(subject: str, event: Event) -> str | None:
    """Return why *event* should not have come on *subject*; None if that is where it belongs."""
    cluster = event.source.removeprefix("/").partition("/")[0]
    on = (subject.split(".") + [""] * 3)[2]
    if event.source.count("/") != 2 or not event.source.startswith("/"):  # noqa: PLR2004 - /<cluster>/<service>
        return f"source {event.source!r} is not /<cluster>/<service>"
    if on != cluster:
        return f"source {event.source!r} is of cluster {cluster}, its subject {subject} of {on}"
    if subject != (wanted := fact(cluster, event)):
        return f"came on {subject}, belongs on {wanted}"
    return None


def dead_letters(cluster: str, service: str) -> str:
    """Return the subject of all dead letters of *service*."""
    return f"sunk.dlq.{cluster}.{token(service)}.message.*"


def facts(cluster: str, kind: type[Event] | None = None) -> str:
    """Return the subject to subscribe to for all facts of *cluster*, or for those of one *kind*."""
    if kind is None:
        return f"sunk.ev.{cluster}.>"
    place, what = _FACT[kind]
    return f"sunk.ev.{cluster}.{place}.*.{what}"


def facts_about(cluster: str, entity: str) -> str:
    """Return the subject of all facts of *cluster* about what is called *entity*, of whatever kind."""
    return f"sunk.ev.{cluster}.*.*.{token(entity)}.*"


def place_of(subject: str) -> tuple[str, str, str] | None:
    """Return kind, entity and word of the fact on *subject*: ``slurm.node``, ``d1``, ``drained``."""
    match subject.split("."):
        case ["sunk", "ev", _, system, kind, entity, word]:
            try:
                return f"{system}.{kind}", from_token(entity), word
            except ValueError:
                return None
        case _:
            return None


def fact_stream(cluster: str) -> str:
    """Return the stream that holds the facts of *cluster*."""
    return f"SUNK_EV_{cluster}"


def question(cluster: str, request: Request) -> str:
    """Return the subject that *request* is asked on."""
    place, field, verb = _QUESTION[type(request)]
    entity = str(msgspec.structs.asdict(request)[field])
    return f"sunk.rpc.{cluster}.{place}.{token(entity)}.{verb}"


def every_question(cluster: str) -> str:
    """Return the subject that covers every question: no stream may store any of it."""
    return f"sunk.rpc.{cluster}.>"


def questions(cluster: str, kind: type[Request]) -> str:
    """Return the subject that a service which answers questions of *kind* subscribes to."""
    place, _, verb = _QUESTION[kind]
    return f"sunk.rpc.{cluster}.{place}.*.{verb}"


def bucket(cluster: str, kind: type[State]) -> str:
    """Return the bucket that holds the states of *kind*."""
    return f"SUNK_{cluster}_{_BUCKET[kind]}"


def lease_bucket(cluster: str) -> str:
    """Return the bucket that holds the leases of *cluster*."""
    return f"SUNK_{cluster}_lease"


def bucket_stream(bucket: str) -> str:
    """Return the stream behind *bucket*."""
    return f"KV_{bucket}"


def bucket_keys(bucket: str) -> str:
    """Return the subject of all keys of *bucket*."""
    return f"$KV.{bucket}.>"


def any_key(bucket: str) -> str:
    """Return the subject of any one key of *bucket*: an escaped key is one token."""
    return f"$KV.{bucket}.*"


def key_subject(bucket: str, key: str) -> str:
    """Return the subject of *key*, which is escaped here."""
    return f"$KV.{bucket}.{token(key)}"


def key_of(bucket: str, subject: str) -> str:
    """Return the key whose subject in *bucket* is *subject*, unescaped."""
    return from_token(subject.removeprefix(f"$KV.{bucket}."))


def inbox(user: str) -> str:
    """Return what the subjects begin with on which *user*, and nobody else, hears answers."""
    return f"{_INBOXES}.{token(user)}"


def is_inbox(subject: str) -> bool:
    """Whether *subject* is where somebody hears answers: an answer sent elsewhere would be a deed."""
    return subject.startswith(f"{_INBOXES}.")
