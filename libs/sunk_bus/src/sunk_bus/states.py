"""Buckets, keys and values as rows: the columns that matter, by kind.

A value that cannot be read keeps its row and says why; one of a kind without columns of its own shows its
first few fields.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from sunk_bus.patterns import name_of
from sunk_bus.reading import Record
from sunk_bus.words import age, safe
from sunk_events import subjects
from sunk_events.base import State
from sunk_events.catalog import STATES
from sunk_events.codec import UndecodableError, decode_state
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_runtime.errors import PermanentError

_CELLS_MAX: Final = 5


class Bucket(msgspec.Struct, frozen=True):
    """A bucket that is there. ``kind`` is None for leases."""

    cluster: str
    name: str
    kind: type[State] | None

    @property
    def full_name(self) -> str:
        """Return its name on the server."""
        return (
            subjects.lease_bucket(self.cluster)
            if self.kind is None
            else subjects.bucket(self.cluster, self.kind)
        )

    @property
    def stream(self) -> str:
        """Return the stream behind it."""
        return subjects.bucket_stream(self.full_name)


class Row(msgspec.Struct, frozen=True):
    """One key: its cells, or why its value cannot be read."""

    key: str
    cells: tuple[str, ...]
    age: str
    problem: str = ""


Cells = Callable[[Any], tuple[object, ...]]


def _slurm_node(node: SlurmNodeState) -> tuple[object, ...]:
    return (
        "+".join((node.state, *node.flags)),
        f"{node.cpus_allocated}/{node.cpus}",
        f"{node.gpus_allocated}/{node.gpus}",
        ",".join(node.partitions),
        node.reason,
    )


def _slurm_job(job: SlurmJobState) -> tuple[object, ...]:
    return "+".join((job.state, *job.flags)), job.user, job.name, job.partition, job.nodes, job.reason


def _slurm_partition(partition: SlurmPartitionState) -> tuple[object, ...]:
    return partition.state, partition.nodes_total, partition.cpus_total, partition.nodes


def _slurm_statistics(seen: SlurmStatisticsState) -> tuple[object, ...]:
    return seen.jobs_pending, seen.jobs_running, seen.threads, seen.agent_queue, f"{seen.cycle_mean_s:.3f} s"


def _kube_pod(pod: KubePodState) -> tuple[object, ...]:
    marks = [
        word for word, is_so in (("cordoned", pod.is_cordoned), ("condemned", pod.is_condemned)) if is_so
    ]
    ready = "ready" if pod.is_ready else "not ready"
    return pod.phase, ready, pod.kube_node, pod.nodeset, ", ".join(marks), pod.cordon_reason


def _lock(lock: LockState) -> tuple[object, ...]:
    holders = ", ".join(f"{holder.job} {'granted' if holder.granted else 'waits'}" for holder in lock.holders)
    return lock.lock, lock.kube_node, holders, ", ".join(lock.in_the_way)


def _placement(placement: PlacementState) -> tuple[object, ...]:
    pod = f"{placement.namespace}/{placement.pod}"
    return placement.phase, pod, placement.job, placement.node, placement.reason


_COLUMNS: Final[Mapping[type[State], tuple[tuple[str, ...], Cells]]] = {
    SlurmNodeState: (("state", "cpus", "gpus", "partitions", "reason"), _slurm_node),
    SlurmJobState: (("state", "user", "name", "partition", "nodes", "reason"), _slurm_job),
    SlurmPartitionState: (("state", "nodes", "cpus", "names"), _slurm_partition),
    SlurmStatisticsState: (("pending", "running", "threads", "agent queue", "cycle mean"), _slurm_statistics),
    KubePodState: (("phase", "ready", "node", "nodeset", "marks", "cordon reason"), _kube_pod),
    LockState: (("lock", "node", "jobs", "in the way"), _lock),
    PlacementState: (("phase", "pod", "job", "node", "reason"), _placement),
}


def columns_of(kind: type[State] | None) -> tuple[str, ...]:
    """Return the headings between key and age."""
    if kind is None:
        return ("holder",)
    if kind in _COLUMNS:
        return _COLUMNS[kind][0]
    return tuple(name for name in kind.__struct_fields__ if name != "changed")[:_CELLS_MAX]


def row_of(bucket: Bucket, record: Record, now: datetime) -> Row:
    """Return the row of what is stored for one key."""
    key = key_of(bucket, record)
    if record.is_deletion:
        return Row(key, (), age(record.stored, now), "deleted")
    try:
        cells, since = _cells(bucket.kind, record)
    except (UndecodableError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return Row(key, (), age(record.stored, now), f"unreadable: {safe(str(error))}")
    return Row(key, tuple("" if cell is None else safe(str(cell)) for cell in cells), age(since, now))


def _cells(kind: type[State] | None, record: Record) -> tuple[tuple[object, ...], datetime]:
    if kind is None:
        content = msgspec.json.decode(record.data, type=dict[str, object])
        return (content.get("holder"),), record.stored
    state: Any = decode_state(kind, record.data)
    if kind in _COLUMNS:
        return _COLUMNS[kind][1](state), state.changed
    return tuple(getattr(state, name) for name in columns_of(kind)), state.changed


def key_of(bucket: Bucket, record: Record) -> str:
    """Return the key of what is stored, as people spell it."""
    return safe(
        name_of(record.subject.removeprefix(subjects.bucket_keys(bucket.full_name).removesuffix(">")))
    )


def names_of_buckets() -> dict[str, type[State] | None]:
    """Return each bucket's name as people say it, with the kind of state that it holds."""
    prefix = subjects.bucket("", next(iter(STATES))).partition("__")[0] + "__"
    named: dict[str, type[State] | None] = {
        subjects.bucket("", kind).removeprefix(prefix): kind for kind in STATES
    }
    named[subjects.lease_bucket("").removeprefix(prefix)] = None
    return named


def buckets_of(streams: list[str]) -> list[Bucket]:
    """Return the buckets among *streams*, sorted by cluster and name."""
    known = names_of_buckets()
    prefix, _, _ = subjects.bucket_stream(subjects.lease_bucket("\0")).partition("\0")
    found: list[Bucket] = []
    for stream in streams:
        # A cluster's name has no underscore, so the first one ends it.
        cluster, _, name = stream.removeprefix(prefix).partition("_")
        if stream.startswith(prefix) and name in known:
            found.append(Bucket(cluster, name, known[name]))
    return sorted(found, key=lambda bucket: (bucket.cluster, bucket.name))


def chosen(buckets: list[Bucket], typed: str) -> list[Bucket]:
    """Return the buckets that somebody means by *typed*, one a cluster.

    Raises:
        PermanentError: none is called so, or several are; says which there are.
    """
    word = typed.lower().replace("-", "_").replace(".", "_")
    exact = [
        bucket for bucket in buckets if word in {bucket.name, bucket.full_name.lower().replace("-", "_")}
    ]
    found = exact or [bucket for bucket in buckets if bucket.name.endswith(f"_{word}")]
    names = sorted({bucket.name for bucket in found})
    if len(names) == 1:
        return found
    there = ", ".join(names or sorted({bucket.name for bucket in buckets})) or "none on this bus"
    raise PermanentError(
        f"{'several buckets are' if names else 'no bucket is'} called {typed!r}: there are {there}"
    )


def is_chosen(key: str, glob: str) -> bool:
    """Return whether *key* is *glob*, or matches it."""
    return not glob or key == glob or fnmatchcase(key, glob)


def pretty(record: Record) -> str:
    """Return a value whole, indented; bytes that are no JSON as they are."""
    try:
        return msgspec.json.format(record.data, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return safe(repr(record.data))
