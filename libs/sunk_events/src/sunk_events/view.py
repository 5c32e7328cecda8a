"""Answers of the read-only API for people (`libs/sunk_view`), as JSON. None of them is ever on the bus.

Fields are only ever added, as with facts: an older `sunkctl` ignores what it does not know.
"""

from typing import Final

import msgspec

from sunk_events.base import Count, JobId, Moment
from sunk_events.requests import Finding

GROUP: Final = "view.sunk.coreweave.com"
"""The API group that the API server hands on to sunk-view."""
VERSION: Final = "v1alpha1"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"
ROLE: Final = "sunk-view"
"""The ClusterRole that lets a user see what belongs to no namespace: jobs, locks, the whole."""
HIDDEN: Final = "a Pod of another team"
"""In place of a Pod whose namespace the caller may not read."""
TABLES: Final = ("nodes", "jobs", "placements")
"""What can be followed: `Changes` has the rows of each."""


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm node with its Pod, its Node and their lock."""

    cluster: str
    node: str
    state: str = ""
    """Slurm's base state; empty: Slurm has no such node."""
    flags: tuple[str, ...] = ()
    reason: str = ""
    reason_user: str = ""
    reason_changed: Moment | None = None
    is_drain: bool = False
    is_busy: bool = False
    is_down: bool = False
    partitions: tuple[str, ...] = ()
    cpus: Count = 0
    cpus_allocated: Count = 0
    gpus: Count = 0
    gpus_allocated: Count = 0
    kube_node: str = ""
    nodeset: str = ""
    pod_phase: str = ""
    is_pod_ready: bool = False
    is_cordoned: bool = False
    kube_since: Moment | None = None
    """Since when its Pod and Node are so, cordon and all, as the nodeset-controller saw them."""
    lock: str = ""
    """``false``, ``pending``, ``locked`` or ``locked_strict``; empty: no lock is known."""


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    """A Node that is locked, or waits for that."""

    cluster: str
    node: str
    kube_node: str
    lock: str
    since: Moment
    granted: tuple[JobId, ...] = ()
    waiting: tuple[JobId, ...] = ()
    in_the_way: tuple[str, ...] = ()
    """Pods as ``namespace/name``, or `HIDDEN`."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm job that is not over."""

    cluster: str
    job: JobId
    name: str = ""
    """Of a placeholder job that of its Pod, ``namespace/name``, or `HIDDEN`."""
    user: str = ""
    account: str = ""
    partition: str = ""
    state: str = ""
    reason: str = ""
    nodes: str = ""
    cpus: Count = 0
    gpus: Count = 0
    submitted: Moment | None = None
    started: Moment | None = None
    priority: Count | None = None
    is_held: bool = False
    is_placeholder: bool = False
    """It is the job of a Pod that Slurm places, as the bus says; a name proves nothing."""


class PodRow(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that Slurm places, or a gang of them."""

    cluster: str
    key: str = ""
    """Tells rows apart, also those of hidden Pods, and says nothing of the Pod."""
    namespace: str
    """Empty where the caller may not read it; `pod` is `HIDDEN` then, and `job` is missing."""
    pod: str
    phase: str
    since: Moment
    created: Moment | None = None
    job: JobId | None = None
    node: str = ""
    kube_node: str = ""
    reason: str = ""
    start: Moment | None = None
    """When Slurm expects to start its job."""
    is_gang: bool = False
    """It is a gang; `pod` is the name of its workload."""
    gang: str = ""
    """Of a member: the name of its gang's workload."""
    rank: Count | None = None


class DrainCause(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are drained or down for the same reason."""

    reason: str
    is_down: bool = False
    nodes: Count
    some: tuple[str, ...] = ()
    """The first few of them."""
    oldest: Moment | None = None


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A service, as far as the bus knows of it."""

    service: str
    leader: str = ""
    """Which replica leads; empty: none, or the bus does not know."""
    seen: Moment | None = None
    """When it last wrote that it works."""
    problem: str = ""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One Slurm cluster in one screen."""

    cluster: str
    nodes: dict[str, Count]
    """How many nodes are in each state, a drained one under ``drained`` or ``draining``."""
    drains: tuple[DrainCause, ...] = ()
    locks: dict[str, Count]
    """How many Nodes are locked, and how many wait."""
    pending_locks: tuple[LockRow, ...] = ()
    """Those that wait, the oldest first, at most 20."""
    jobs: dict[str, Count]
    """How many jobs are in each state, each task of an array counted."""
    waits: dict[str, Count]
    """How many pending jobs wait for each of Slurm's reasons."""
    placements: dict[str, Count]
    """How many Pods are in each phase."""
    gangs: Count = 0
    services: tuple[ServiceRow, ...] = ()


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``/status``."""

    clusters: tuple[ClusterStatus, ...]
    problems: tuple[str, ...] = ()
    """States on the bus that cannot be read. Services that are silent are in `services`."""


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``/nodes``."""

    items: tuple[NodeRow, ...]
    problems: tuple[str, ...] = ()
    """Services that are silent: what they wrote may be old."""
    time: Moment | None = None
    """When this was answered, by sunk-view's clock."""
    slurm_seen: dict[str, Moment] = {}
    """When Slurm last answered with its nodes, for each Slurm cluster of which that is known."""
    after: str = ""
    """Where ``/changes`` goes on from this answer."""


class Locks(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``/locks``."""

    items: tuple[LockRow, ...]
    problems: tuple[str, ...] = ()
    """Services that are silent: what they wrote may be old."""


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``/jobs``: the jobs that are not over."""

    items: tuple[JobRow, ...]
    problems: tuple[str, ...] = ()
    """Services that are silent: what they wrote may be old."""
    after: str = ""
    """Where ``/changes`` goes on from this answer."""


class Pods(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``/placements``, and to ``/pods`` of a namespace."""

    items: tuple[PodRow, ...]
    problems: tuple[str, ...] = ()
    """Services that are silent: what they wrote may be old."""
    after: str = ""
    """Where ``/changes`` goes on from this answer."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``/changes``: what is otherwise than in the answers that the caller has.

    A row is whole and stands for the one that the caller has of the same thing. Where a table is in `whole`
    or `refused`, there are no rows of it.
    """

    time: Moment
    """When this was answered, by sunk-view's clock."""
    silent_s: float = 0.0
    """For how long the bus has given no sign of life: it gives one each second. So old may this be."""
    nodes: tuple[NodeRow, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    placements: tuple[PodRow, ...] = ()
    gone: dict[str, tuple[str, ...]] = {}
    """By table, what has no row any more: ``cluster/`` with the name, the number or the `key` of its row."""
    after: dict[str, str] = {}
    """By table, where the next question goes on."""
    whole: tuple[str, ...] = ()
    """Tables to be read as a whole again: too much has changed, or what did is not known."""
    late: tuple[str, ...] = ()
    """Tables of which this replica knows less than the one that was asked before."""
    refused: tuple[str, ...] = ()
    """Tables that the caller may not see, or no longer."""
    slurm_seen: dict[str, Moment] = {}
    """When Slurm last answered with its nodes, for each Slurm cluster of which that is known."""
    problems: tuple[str, ...] = ()
    """Services that are silent: what they wrote may be old."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one service answers."""

    cluster: str
    service: str
    findings: tuple[Finding, ...] = ()
    """The most important first; empty: there is nothing to report, or there is a problem."""
    problem: str = ""
    """Why the service answers nothing."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to an ``explain``."""

    what: str
    """``node``, ``pod``, ``job`` or ``gang``."""
    name: str
    parts: tuple[Part, ...] = ()
    is_unknown: bool = False
    """Slurm places no Pod or gang of that name. Of a node or job that is not known there are no `parts`."""
    near: tuple[str, ...] = ()
    """Where nothing is known of it: names that are nearly the same."""
    problems: tuple[str, ...] = ()
    """Services that are silent: what they wrote may be old."""


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of the bus: something that happened to a node, a job or a Pod."""

    cluster: str
    sequence: Count
    """Of the stream of its Slurm cluster; it grows."""
    time: Moment
    about: str
    """What kind of thing it is about, as subjects have it: ``slurm.node``, ``placement.pod``."""
    namespace: str = ""
    """Of a Pod that Slurm places."""
    name: str
    """Of the node, job or Pod; `HIDDEN` where the caller may not read the Pod."""
    what: str
    """What happened, in a word: ``drained``."""
    details: tuple[str, ...] = ()


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to ``/events``, and to those of a node, a job or a Pod. The oldest comes first."""

    items: tuple[EventRow, ...]
    after: str
    """Where to go on: the next question has this as its ``after``."""
    is_more: bool = False
    """There is more already: ask again at once."""
    key: str = ""
    """How the bus knows what was asked about; the next question has this as its ``key``."""
    near: tuple[str, ...] = ()
    """Where nothing is known of it: names that are nearly the same."""
    problems: tuple[str, ...] = ()
    """Services that are silent, and events that are missing."""
