"""Who may do what on the bus: one NATS user a service, whose permissions are made from the catalog.

What must stay true: a service publishes its own facts and writes its own buckets only; one that serves one
Slurm cluster sees nothing of another; nobody but `ADMIN` changes, empties or removes a stream; answers reach
only users that may ask.

An answerer may publish to the inboxes of users that may ask it, and has no ``allow_responses``: with that it
could be led to publish on whatever subject a question names for its answer.

Source: NATS documentation, "Authorization" and "JetStream wire API"; ADR-15 for the acknowledgement subjects.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from sunk_events import jobs, locks, nodes, nodesets, placements, requests, subjects, view_user
from sunk_events.base import Request, State
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.dead import DeadLetter

Service = Literal["syncer", "nodeset-controller", "pod-scheduler", "hook-gateway", "metrics-exporter"]
SERVICES: Final[tuple[Service, ...]] = (
    "syncer",
    "nodeset-controller",
    "pod-scheduler",
    "hook-gateway",
    "metrics-exporter",
)
FOR_ALL_CLUSTERS: Final[frozenset[Service]] = frozenset({"nodeset-controller"})
"""One for the Kubernetes cluster; each of the others is there once for each Slurm cluster."""

ADMIN: Final = "admin"
"""The user of people: everything, as they mend what nobody else may touch."""
LINK: Final = "teams"
"""The user as which the server of other teams connects (`sunk_events.teams`), to mirror facts and states."""
KEEPER: Final = "keeper"
"""The user there that makes the mirrors."""

READS: Final[dict[Service, tuple[type[State], ...]]] = {
    "syncer": (
        nodesets.KubePodState,
        nodesets.NodeSliceState,
        nodesets.KubeWatchState,
        placements.PlacementState,
        locks.LockState,
    ),
    "nodeset-controller": (
        nodes.SlurmNodeState,
        nodes.SlurmStatisticsState,
        jobs.SlurmJobState,
        placements.PlacementState,
    ),
    "pod-scheduler": (
        jobs.SlurmJobState,
        nodes.SlurmNodeState,
        nodes.SlurmStatisticsState,
        nodesets.KubePodState,
        locks.LockState,
    ),
    "hook-gateway": (
        nodes.SlurmNodeState,
        nodesets.KubePodState,
        locks.LockState,
        placements.PlacementState,
    ),
    "metrics-exporter": (
        nodes.SlurmNodeState,
        jobs.SlurmJobState,
        nodes.SlurmPartitionState,
        nodes.SlurmStatisticsState,
        locks.LockState,
        placements.PlacementState,
        nodesets.KubePodState,
    ),
}
"""Whose states a service follows, besides its own."""

REQUESTED_BY: Final[dict[type[Request], tuple[Service, ...]]] = {
    requests.AcquireLock: ("hook-gateway",),
    requests.ReleaseLock: ("hook-gateway",),
    requests.ConfirmNode: ("nodeset-controller",),
    requests.ConfirmJobs: ("nodeset-controller",),
    requests.NudgeNode: ("hook-gateway",),
    requests.NudgeJob: ("hook-gateway",),
    requests.PlacementAnnounced: ("hook-gateway",),
    requests.PlacementSilent: ("hook-gateway",),
    requests.ReleasePlacement: ("hook-gateway",),
    requests.RebootNode: ("hook-gateway",),
    requests.RequeueJob: ("nodeset-controller",),
    requests.ExplainSlurmNode: (),
    requests.ExplainJob: (),
    requests.ExplainJobToOwner: ("hook-gateway",),
    requests.ExplainKubeNode: (),
    requests.ExplainPlacement: (),
}
"""Who asks. `ADMIN` may ask everything; a question that only people ask has an empty tuple."""

DURABLES: Final[dict[Service, tuple[str, ...]]] = {"metrics-exporter": ("metrics-exporter-facts",)}
"""The durable consumers by which a service reads facts."""

DRAIN_LEAVES: Final = "drain-leaves"
"""The key in which the replicas of hook-gateway count the drains of failed locks that they give leave to."""

LEASES: Final[dict[Service, tuple[str, ...]]] = {
    "syncer": ("syncer",),
    "hook-gateway": (DRAIN_LEAVES,),
    "metrics-exporter": ("metrics-exporter",),
}
"""The keys of the lease bucket that a service writes: leases that it takes, and what its replicas share."""

API: Final = "$JS.API"
DOMAIN_API: Final = "$JS.sunk.API"
"""How the server of other teams calls our JetStream; ``mappings`` of the configuration says so."""


class Permissions(msgspec.Struct, frozen=True):
    """What a user may publish and subscribe to; everything else is denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


class User(msgspec.Struct, frozen=True):
    """A NATS user; without permissions it may do everything."""

    name: str
    permissions: Permissions | None


def user_name(service: Service, cluster: str) -> str:
    """Return the user that *service* is for *cluster*."""
    return service if service in FOR_ALL_CLUSTERS else f"{service}-{cluster}"


def users(clusters: Iterable[str]) -> tuple[User, ...]:
    """Return every user that a Kubernetes cluster with these Slurm clusters needs."""
    names = tuple(clusters)
    made: list[User] = []
    for service in SERVICES:
        groups = (names,) if service in FOR_ALL_CLUSTERS else tuple((name,) for name in names)
        made += [User(user_name(service, group[0]), permissions(service, group)) for group in groups if group]
    others = (User(LINK, _linked(names)), User(view_user.VIEW, view_permissions(names)))
    return (*made, *others, User(ADMIN, None))


def permissions(service: Service, clusters: Iterable[str]) -> Permissions:
    """Return what *service* may do where it serves *clusters*."""
    names = tuple(clusters)
    inboxes = dict.fromkeys(f"{subjects.inbox(user_name(service, name))}.>" for name in names)
    return Permissions(
        publish=tuple(dict.fromkeys(subject for name in names for subject in _published(service, name))),
        subscribe=(*inboxes, *(subject for name in names for subject in _answered(service, name))),
    )


def view_permissions(clusters: Iterable[str]) -> Permissions:
    """Return what the user of sunk-view may do."""
    return Permissions(
        publish=view_user.published(clusters), subscribe=(f"{subjects.inbox(view_user.VIEW)}.>",)
    )


def streams(cluster: str) -> tuple[str, ...]:
    """Return the streams of *cluster*, the buckets' included: any of its services makes what is missing."""
    buckets = (*(subjects.bucket(cluster, kind) for kind in STATES), subjects.lease_bucket(cluster))
    return (
        subjects.fact_stream(cluster),
        subjects.DEAD_LETTER_STREAM,
        *(subjects.bucket_stream(bucket) for bucket in buckets),
    )


def mirrored(cluster: str) -> tuple[str, ...]:
    """Return the streams of *cluster* that other teams see: facts and states, no leases or dead letters."""
    buckets = (subjects.bucket(cluster, kind) for kind in STATES)
    return (subjects.fact_stream(cluster), *(subjects.bucket_stream(bucket) for bucket in buckets))


def configuration(wanted: Iterable[User], passwords: Mapping[str, str]) -> str:
    """Return nats-server's ``authorization`` block.

    Args:
        wanted: The users.
        passwords: By user; nats-server takes them in plain text or as bcrypt made them.

    Raises:
        KeyError: a user has no password.
    """
    return f"authorization: {json.dumps({'users': users_in_nats(wanted, passwords)}, indent=2)}\n"


def users_in_nats(wanted: Iterable[User], passwords: Mapping[str, str]) -> Sequence[Mapping[str, object]]:
    """Return *wanted* in the form that nats-server's configuration has."""
    return [
        {"user": user.name, "password": passwords[user.name]}
        | ({"permissions": as_nats(user.permissions)} if user.permissions else {})
        for user in wanted
    ]


def as_nats(allowed: Permissions) -> dict[str, dict[str, list[str]]]:
    """Return *allowed* in the form that nats-server's configuration has: to it an empty list allows all."""
    return {
        verb: {"allow": list(given)} if given else {"deny": [">"]}
        for verb, given in (("publish", allowed.publish), ("subscribe", allowed.subscribe))
    }


def _published(service: Service, cluster: str) -> Iterator[str]:
    """Yield what *service* publishes for *cluster*: facts, states, questions, answers, calls of JetStream."""
    for kind, owner in EVENTS.items():
        if owner == service and kind is not DeadLetter:
            yield subjects.facts(cluster, kind)
    yield subjects.dead_letters(cluster, service)
    for kind, owner in STATES.items():
        if owner == service:
            yield subjects.any_key(subjects.bucket(cluster, kind))
    for lease in LEASES.get(service, ()):
        yield subjects.key_subject(subjects.lease_bucket(cluster), lease)
    yield from _questions_and_inboxes(service, cluster)
    yield from _called(service, cluster)


def _questions_and_inboxes(service: Service, cluster: str) -> Iterator[str]:
    """Yield the questions that *service* asks, and where those hear it who ask it."""
    for kind, (owner, _) in REQUESTS.items():
        if service in REQUESTED_BY[kind]:
            yield subjects.questions(cluster, kind)
        if service == owner:
            yield f"{subjects.inbox(ADMIN)}.>"
            if kind in view_user.QUESTIONS:
                yield f"{subjects.inbox(view_user.VIEW)}.>"
            for asker in REQUESTED_BY[kind]:
                yield f"{subjects.inbox(user_name(asker, cluster))}.>"


def _answered(service: Service, cluster: str) -> Iterator[str]:
    """Yield the questions that *service* listens for."""
    for kind, (owner, _) in REQUESTS.items():
        if owner == service:
            yield subjects.questions(cluster, kind)


def _called(service: Service, cluster: str) -> Iterator[str]:
    """Yield the calls of JetStream: make what is missing, follow what is read, look at what is written."""
    yield "$SYS.REQ.USER.INFO"  # What we may do; the server answers about who asks, and nobody else.
    yield f"{API}.STREAM.NAMES"  # Whether somebody else's stream captures our subjects.
    for stream in streams(cluster):
        yield f"{API}.STREAM.CREATE.{stream}"
        yield f"{API}.STREAM.INFO.{stream}"
    own = [kind for kind, owner in STATES.items() if owner == service]
    for kind in (*own, *READS[service]):
        stream = subjects.bucket_stream(subjects.bucket(cluster, kind))
        yield f"{API}.CONSUMER.CREATE.{stream}"
        yield f"{API}.CONSUMER.MSG.NEXT.{stream}.*"  # NATS gives a view's consumer its name.
        yield f"{API}.STREAM.MSG.GET.{stream}"  # How far its leader is; what is stored where we write.
    if service in LEASES:
        yield f"{API}.STREAM.MSG.GET.{subjects.bucket_stream(subjects.lease_bucket(cluster))}"
    for durable in DURABLES.get(service, ()):
        yield from consumed(subjects.fact_stream(cluster), durable)


def consumed(stream: str, durable: str) -> Iterator[str]:
    """Yield what reading *stream* through *durable* takes, for both forms of acknowledgement subjects."""
    yield f"{API}.CONSUMER.DURABLE.CREATE.{stream}.{durable}"
    yield f"{API}.CONSUMER.RESET.{stream}.{durable}"
    yield f"{API}.CONSUMER.MSG.NEXT.{stream}.{durable}"
    yield f"$JS.ACK.{stream}.{durable}.>"
    yield f"$JS.ACK.*.*.{stream}.{durable}.>"


def _linked(clusters: tuple[str, ...]) -> Permissions:
    """Return what may pass from and to the server of other teams: mirrors and the facts as they come.

    JetStream delivers a mirror's messages below ``$JS.M`` and answers whoever makes its consumer below
    ``$JSC.R``.
    """
    calls: list[str] = []
    for stream in (stream for cluster in clusters for stream in mirrored(cluster)):
        calls += [
            f"{DOMAIN_API}.CONSUMER.CREATE.{stream}",
            f"{DOMAIN_API}.STREAM.INFO.{stream}",
            f"{DOMAIN_API}.STREAM.MSG.GET.{stream}",
            f"$JS.FC.{stream}.>",
        ]
    facts = (subjects.facts(cluster) for cluster in clusters)
    return Permissions(
        publish=tuple(calls), subscribe=(*facts, "$JS.M.>", "$JSC.R.>", f"{subjects.inbox(KEEPER)}.>")
    )
