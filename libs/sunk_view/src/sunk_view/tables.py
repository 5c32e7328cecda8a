"""States of the bus as rows and counts for people. Pure."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_events.view import DrainCause, JobRow, LockRow, NodeRow, PodRow
from sunk_view.positions import key_of

CAUSES_MAX: Final = 30
SOME: Final = 5
LOCKS_MAX: Final = 20
SLURM_LATE_S: Final = 150.0
"""The syncer has each of Slurm's lists at least once a minute."""
KUBERNETES_LATE_S: Final = 60.0
"""The nodeset-controller writes every 10 s that it follows Kubernetes."""


def node_rows(
    cluster: str, nodes: Iterable[SlurmNodeState], pods: Iterable[KubePodState], locks: Iterable[LockState]
) -> tuple[NodeRow, ...]:
    """Return a row for each node that Slurm or a NodeSet has, by name."""
    slurm = {node.node: node for node in nodes}
    kube = {pod.pod: pod for pod in pods}
    lock_of = {lock.node: lock.lock for lock in locks}
    return tuple(
        _node_row(cluster, name, slurm.get(name), kube.get(name), lock_of.get(name, ""))
        for name in sorted(slurm.keys() | kube.keys())
    )


def _node_row(
    cluster: str, name: str, node: SlurmNodeState | None, pod: KubePodState | None, lock: str
) -> NodeRow:
    row = NodeRow(
        cluster=cluster,
        node=name,
        lock=lock,
        kube_node=pod.kube_node if pod else "",
        nodeset=pod.nodeset if pod else "",
        pod_phase=pod.phase if pod else "",
        is_pod_ready=pod.is_ready if pod else False,
        is_cordoned=pod.is_cordoned if pod else False,
        kube_since=pod.changed if pod else None,
    )
    if node is None:
        return row
    return msgspec.structs.replace(
        row,
        state=node.state,
        flags=node.flags,
        reason=node.reason,
        reason_user=node.reason_user,
        reason_changed=node.reason_changed,
        is_drain=node.is_drain,
        is_busy=node.is_busy,
        is_down=node.is_down,
        partitions=node.partitions,
        cpus=node.cpus,
        cpus_allocated=node.cpus_allocated,
        gpus=node.gpus,
        gpus_allocated=node.gpus_allocated,
    )


def state_word(node: SlurmNodeState) -> str:
    """Return the one word under which a node is counted, as ``sinfo`` has it."""
    if node.is_down:
        return "down"
    if node.is_drain:
        return "draining" if node.is_busy else "drained"
    return node.state.lower()


def lock_rows(cluster: str, locks: Iterable[LockState]) -> tuple[LockRow, ...]:
    """Return a row for each Node that is locked or waits for that; the one that waits longest comes first."""
    found = [
        LockRow(
            cluster=cluster,
            node=lock.node,
            kube_node=lock.kube_node,
            lock=lock.lock,
            since=lock.changed,
            granted=tuple(holder.job for holder in lock.holders if holder.granted is not None),
            waiting=tuple(holder.job for holder in lock.holders if holder.granted is None),
            in_the_way=lock.in_the_way,
        )
        for lock in locks
        if lock.lock != "false"
    ]
    return tuple(sorted(found, key=lambda row: (not row.waiting, row.since, row.node)))


def placeholders(placements: Iterable[PlacementState]) -> frozenset[int]:
    """Return the jobs of Pods that Slurm places.

    After Slurm has lost a job, another may have its number.
    """
    return frozenset(one.job for one in placements if one.job is not None and one.lost is None)


def job_rows(cluster: str, jobs: Iterable[SlurmJobState], ours: Container[int] = ()) -> tuple[JobRow, ...]:
    """Return a row for each job that is not over, or still holds nodes, by number; *ours*: placeholders."""
    return tuple(
        JobRow(
            cluster=cluster,
            job=job.job,
            name=job.name,
            user=job.user,
            account=job.account,
            partition=job.partition,
            state="COMPLETING" if job.is_completing else job.state,
            reason=job.reason,
            nodes=job.nodes,
            cpus=job.cpus,
            gpus=job.gpus,
            submitted=job.submitted,
            started=job.started,
            priority=job.priority,
            is_held=job.is_held,
            is_placeholder=job.job in ours,
        )
        for job in sorted(jobs, key=lambda job: job.job)
        if not job.is_over or job.is_completing
    )


def pod_rows(
    cluster: str, placements: Iterable[PlacementState], secret: bytes, namespace: str = ""
) -> tuple[PodRow, ...]:
    """Return a row for each Pod and gang that Slurm places, of one *namespace* if it is given.

    Args:
        cluster: Of Slurm.
        placements: Of it.
        secret: Makes the keys of rows.
        namespace: Of Kubernetes.
    """
    # A gang is in its members' namespace. Sorted is what is wanted: a tenant's question is not of the others.
    known = {one.uid: one for one in placements if not namespace or one.namespace == namespace}
    return tuple(
        pod_row(cluster, one, known, secret)
        for one in sorted(known.values(), key=lambda one: (one.namespace, one.pod, one.uid))
    )


def pod_row(cluster: str, one: PlacementState, known: Mapping[str, PlacementState], secret: bytes) -> PodRow:
    """Return the row of a Pod or gang; *known*: placements by key, its gang's among them."""
    gang = known.get(one.gang)
    return PodRow(
        cluster=cluster,
        key=key_of(one.uid, secret),
        namespace=one.namespace,
        pod=one.pod,
        phase=one.phase,
        since=one.changed,
        created=one.created,
        job=one.job,
        node=one.node,
        kube_node=one.kube_node,
        reason=one.reason,
        start=one.start_told,
        is_gang=one.roster is not None,
        gang=gang.pod if gang is not None else "",
        rank=one.rank,
    )


def drain_causes(nodes: Iterable[SlurmNodeState]) -> tuple[DrainCause, ...]:
    """Return why nodes are drained or down, the cause of most nodes first."""
    by_cause: dict[tuple[str, bool], list[SlurmNodeState]] = {}
    for node in nodes:
        if node.is_drain or node.is_down:
            by_cause.setdefault((node.reason, node.is_down), []).append(node)
    causes = [
        DrainCause(
            reason=reason or "no reason given",
            is_down=is_down,
            nodes=len(found),
            some=tuple(sorted(node.node for node in found)[:SOME]),
            oldest=min((node.reason_changed for node in found if node.reason_changed), default=None),
        )
        for (reason, is_down), found in by_cause.items()
    ]
    return tuple(sorted(causes, key=lambda cause: (-cause.nodes, cause.reason)))[:CAUSES_MAX]


def lag(what: str, seen: datetime | None, now: datetime, late_s: float) -> str:
    """Return what is wrong with a service that saw *what* last when it was *seen*; empty: nothing.

    Args:
        what: Slurm, a list of Slurm's, or Kubernetes.
        seen: None: never.
        now: The time.
        late_s: After so many seconds something is wrong.
    """
    if seen is None:
        return f"has not seen {what} yet"
    ago_s = (now - seen).total_seconds()
    return f"has not seen {what} for {ago_s:.0f} s" if ago_s > late_s else ""


def slurm_lag(nodes: datetime | None, jobs: datetime | None, now: datetime) -> str:
    """Return what is wrong with a syncer that had Slurm's *nodes* and *jobs* last then; empty: nothing.

    Jobs that never came say nothing where nodes did: an older syncer does not say when they came.
    """
    if nodes is None or jobs is None:
        return lag("Slurm's nodes" if jobs else "Slurm", nodes, now, SLURM_LATE_S)
    late = (lag("Slurm's nodes", nodes, now, SLURM_LATE_S), lag("Slurm's jobs", jobs, now, SLURM_LATE_S))
    return lag("Slurm", max(nodes, jobs), now, SLURM_LATE_S) or "".join(late)


def silences(cluster: str, problems: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each service of *cluster* that has a problem, by name."""
    return tuple(
        f"{cluster}: {service} {problem}: its data may be old"
        for service, problem in sorted(problems.items())
        if problem
    )


def unreadable(cluster: str, found: Mapping[str, int]) -> tuple[str, ...]:
    """Return that states of *cluster* cannot be read: how many are *found* of each kind."""
    some = ", ".join(f"{count} of {what}" for what, count in found.items() if count)
    text = f"{cluster}: states on the bus cannot be read ({some}): they are missing, or as they were before"
    return (text,) if some else ()


def counts(words: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return how many there are of each word, the most first."""
    found: Counter[str] = Counter()
    for word, many in words:
        found[word] += many
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
