"""Which Pods on a Node are in the way of its lock.

A Pod is in the way if it is bound to the Node, has not ended, and does not tolerate the taint. A Pod
that Slurm placed is in the way if its job no longer lives on this node. Labels, annotations and
schedulerName prove nothing: only the placements on the bus do. An annotation can only keep its own Pod in
the way (`EvictionPolicy.with_claims`). An owner that a Pod names counts if it exists.

Source: SUNK's documents, "Node locking"; Kubernetes API, Toleration (core/v1 ToleratesTaint).
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.pods import Pod, Toleration
from sunk_nodeset_controller.locks.daemon_claims import DaemonClaim, daemon_claim
from sunk_nodeset_controller.locks.model import Blockers, Clearing, LockTaint


class EvictionPolicy(msgspec.Struct, frozen=True):
    """The rules by which a Pod has to leave or may stay."""

    taint: LockTaint = LockTaint()
    clearing: Clearing = Clearing()

    def with_claims(self, pods: Iterable[Pod], job_by_uid: Mapping[str, int | None]) -> dict[str, int | None]:
        """Return *job_by_uid* with those of *pods* that only their annotation calls placed by Slurm.

        The bus may have lost their placements. They tolerate the lock, so they would be in the way of no job.
        Which job they had is not known: they have none here. A Pod that does not tolerate the lock has to
        leave in any case, so no annotation helps it to stay.
        """
        claims = (pod for pod in pods if wk.ANNOTATION_JOB in pod.metadata.annotations)
        staying = {pod.metadata.uid: None for pod in claims if not self.is_driven_out(pod, is_daemon=False)}
        return {**staying, **job_by_uid}

    def others(
        self,
        pods: Iterable[Pod],
        job_by_uid: Mapping[str, int | None],
        alive: Collection[int],
        daemons: Collection[str],
    ) -> list[Pod]:
        """Return those of *pods* that are in the way.

        Args:
            pods: All Pods that are bound to the Node.
            job_by_uid: The placeholder job of each Pod that Slurm places, None before it has one.
            alive: The jobs that live on this node.
            daemons: The uids of the Pods that are of a DaemonSet that exists.
        """
        return [pod for pod in pods if self._is_other(pod, job_by_uid, alive, daemons)]

    def daemon_claims(
        self, pods: Iterable[Pod], job_by_uid: Mapping[str, int | None]
    ) -> dict[str, DaemonClaim]:
        """Return the claims of *pods*, by uid, that may stay only if their DaemonSet exists.

        The arguments are those of `others`.
        """
        if not (self.taint.evicts and self.clearing.are_daemons_exempt):
            return {}
        others = self.others(pods, job_by_uid, alive=(), daemons=())
        claims = ((pod.metadata.uid, daemon_claim(pod)) for pod in others)
        return {uid: claim for uid, claim in claims if claim is not None and uid not in job_by_uid}

    def keeping_pods(
        self, pods: Iterable[Pod], job_by_uid: Mapping[str, int | None], alive: Collection[int]
    ) -> frozenset[int]:
        """Return those of the jobs *alive* that are the only reason why some of *pods* may stay.

        The arguments are those of `others`.
        """
        jobs = {job_by_uid.get(pod.metadata.uid) for pod in pods if not pod.is_over}
        return frozenset(job for job in jobs if job is not None and job in alive)

    def is_driven_out(self, pod: Pod, *, is_daemon: bool) -> bool:
        """Whether a lock removes *pod*, if Slurm has not placed it.

        Args:
            pod: Bound to the Node.
            is_daemon: It is of a DaemonSet that exists.
        """
        if pod.is_over:
            return False  # Nothing of it runs or will, and the kubelet no longer counts it.
        if self.taint.evicts and self.clearing.is_exempt(pod, is_daemon=is_daemon):
            return False  # Where Kubernetes does it, it knows of no exemptions.
        return not any(tolerates(toleration, self.taint) for toleration in self._near(pod.spec.tolerations))

    def may_evict(self, pod: Pod) -> bool:
        """Whether we have to evict *pod*, which is in the way, because Kubernetes does not delete it.

        A Pod that tolerates a ``NoExecute`` taint for some seconds is admitted, and may stay for so
        long.
        """
        return self.taint.evicts or self._lets_in(pod.spec.tolerations)

    def lets_in_for_a_while(self, tolerations: Collection[Toleration]) -> bool:
        """Whether a ``NoExecute`` taint lets in a Pod with *tolerations*, and not for good."""
        near = self._near(tolerations)
        return self._lets_in(near) and not any(tolerates(one, self.taint) for one in near)

    def _lets_in(self, tolerations: Iterable[Toleration]) -> bool:
        return any(
            tolerates(replace(one, toleration_seconds=None), self.taint) for one in self._near(tolerations)
        )

    def _near(self, tolerations: Iterable[Toleration]) -> list[Toleration]:
        """Return those that may be about the taint: of others a Pod may have any number."""
        key = self.taint.key
        return [one for one in tolerations if one.key == key or not one.key]

    def _is_other(
        self,
        pod: Pod,
        job_by_uid: Mapping[str, int | None],
        alive: Collection[int],
        daemons: Collection[str],
    ) -> bool:
        if pod.metadata.uid in job_by_uid and not pod.is_over:
            # It bears the taint since it was bound, so only its job tells whether it may stay.
            return job_by_uid[pod.metadata.uid] not in alive
        return self.is_driven_out(pod, is_daemon=pod.metadata.uid in daemons)


def blockers(others: Iterable[Pod]) -> Blockers:
    """Return *others*, the Pods in the way, as the lock takes them."""
    found = sorted(others, key=lambda pod: pod.key)
    running = [pod for pod in found if may_run(pod)]
    ends = [pod.metadata.deletion_timestamp if pod.deletion_requested else None for pod in running]
    known = [end for end in ends if end is not None]
    return Blockers(
        normal=tuple(pod.key for pod in running),
        strict=tuple(pod.key for pod in found),
        until=max(known) if known and len(known) == len(ends) else None,
    )


def tolerates(toleration: Toleration, taint: LockTaint) -> bool:
    """Whether *toleration* lets a Pod stay on a Node with *taint* for good. Some seconds do not count."""
    if toleration.toleration_seconds is not None or toleration.effect not in {"", taint.effect}:
        return False
    match toleration.operator:
        case "Exists":
            return toleration.key in {"", taint.key}
        case "Equal" | "":
            return (toleration.key, toleration.value) == (taint.key, taint.value)
        case _:  # A newer Kubernetes' operator: not known to match.
            return False


def may_run(pod: Pod) -> bool:
    """Whether a container of *pod* runs or may yet start.

    Only a Pod whose deletion the kubelet has carried out does not: every container ended after it was
    asked for. A Pending one may start any moment, a crashed one may come back. Where it is not known when
    the deletion was asked for, a container that ended may have crashed before.
    """
    requested_at = pod.deletion_requested
    if requested_at is None:
        return True
    ended = {
        status.name
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        if status.state.terminated is not None
        and status.state.terminated.finished_at is not None
        and status.state.terminated.finished_at >= requested_at
    }
    sidecars = {found.name for found in pod.spec.init_containers if found.restart_policy == "Always"}
    return not ended >= sidecars | {found.name for found in pod.spec.containers}
