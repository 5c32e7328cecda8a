"""Which gang a Pod belongs to, as its labels and its owner say, and on which terms it is in it.

A PodGroup's label is somebody's explicit wish, so it counts before what made the Pod. A Job's Pods are a
gang if the Job runs all of them at once, which only the Job itself says.

Source: Kubernetes, "Jobs"; JobSet and LeaderWorkerSet, their API's well-known labels; scheduler-plugins,
"Coscheduling".
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from sunk_kube.objects import OwnerReference
from sunk_kube.pods import Pod
from sunk_kube.resources import is_name
from sunk_kube.wellknown import (
    ANNOTATION_GANG,
    ANNOTATION_GANG_MEMBERS_PER_NODE,
    ANNOTATION_GANG_MIN_AVAILABLE,
    ANNOTATION_GANG_POLICY,
    ANNOTATION_GANG_RANK,
    ANNOTATION_GANG_REQUESTED_SIZE,
    ANNOTATION_GANG_SIZE,
)

ID_PREFIX: Final = "gang-"
"""No Pod's uid starts so."""
LABEL_POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
LABEL_LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LABEL_LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
LABEL_LWS_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
ANNOTATION_LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
LABEL_JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
LABEL_JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
LABEL_JOBSET_RESTART: Final = "jobset.sigs.k8s.io/restart-attempt"
LABEL_JOBSET_JOB: Final = "jobset.sigs.k8s.io/job-global-index"
ANNOTATION_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

Kind = Literal["Job", "JobSet", "LeaderWorkerSet", "PodGroup"]
Policy = Literal["fail", "replace"]
SIZE_MAX: Final = 4096
"""More do not fit into one state on the bus."""
_POLICIES: Final[Mapping[str, Policy]] = {"fail": "fail", "replace": "replace"}
_DIGITS_MAX: Final = 6
"""Of any number that is read here."""
_LAST: Final = 1 << 62


class GangMembership(msgspec.Struct, frozen=True, kw_only=True):
    """The workload that a Pod is part of."""

    kind: Kind
    namespace: str
    name: str
    uid: str = ""
    """What tells this one from another of the same name: the owner's uid, the group, the restart."""
    index: str = ""
    """Which of the workload's Pods this is; empty where they are not counted."""
    size: int | None = None
    """How many there are, where the workload writes that on its Pods."""

    @property
    def id(self) -> str:
        """The gang's key: the same for all its Pods, and after every restart."""
        parts = f"{self.kind}/{self.namespace}/{self.name}/{self.uid}"  # None holds a slash.
        return ID_PREFIX + hashlib.sha256(parts.encode()).hexdigest()[:32]

    @property
    def title(self) -> str:
        """The workload, for people."""
        return f"{self.kind} {self.namespace}/{self.name}"


class GangOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations of a member say of its gang."""

    size: int | None = None
    members_per_node: int = 1
    min_available: int | None = None
    policy: Policy = "fail"


def membership(pod: Pod) -> GangMembership | None:
    """Return the workload whose Pods are to be placed together with *pod*, if there is one."""
    meta = pod.metadata
    if meta.annotations.get(ANNOTATION_GANG, "").strip() == "none":
        return None
    labels, namespace = meta.labels, meta.namespace
    index = meta.annotations.get(ANNOTATION_COMPLETION_INDEX, "")
    index = index if len(index) <= _DIGITS_MAX else ""  # Anybody may write what he likes there.
    if name := labels.get(LABEL_POD_GROUP):
        return GangMembership(kind="PodGroup", namespace=namespace, name=name, index=index)
    if name := labels.get(LABEL_LWS_NAME):
        group = labels.get(LABEL_LWS_GROUP, "")
        return GangMembership(
            kind="LeaderWorkerSet",
            namespace=namespace,
            name=name,
            uid=group,
            index=labels.get(LABEL_LWS_WORKER, ""),
            size=_count(meta.annotations.get(ANNOTATION_LWS_SIZE, "")),
        )
    if name := labels.get(LABEL_JOBSET_NAME):
        which = (labels.get(LABEL_JOBSET_UID, ""), labels.get(LABEL_JOBSET_RESTART, ""))
        job = labels.get(LABEL_JOBSET_JOB, "")
        uid = ".".join(filter(None, which))
        return GangMembership(kind="JobSet", namespace=namespace, name=name, uid=uid, index=f"{job}.{index}")
    if (owner := job_of(pod)) and is_name(owner.name):  # The API server takes any text there.
        return GangMembership(kind="Job", namespace=namespace, name=owner.name, uid=owner.uid, index=index)
    return None


def job_of(pod: Pod) -> OwnerReference | None:
    """Return the Kubernetes Job that made *pod*."""
    owners = pod.metadata.owner_references
    return next(
        (one for one in owners if one.controller and one.kind == "Job" and one.api_version == "batch/v1"),
        None,
    )


def gang_options(annotations: Mapping[str, str]) -> tuple[GangOptions, tuple[str, ...]]:
    """Return what *annotations* say of the gang, and everything that is wrong with them."""
    problems: list[str] = []

    def whole(name: str) -> int | None:
        text = annotations.get(name, "").strip()
        if not text:
            return None
        found = _count(text)
        if found is None:
            problems.append(f"{name}: {text[:80]!r} must be an integer from 1 to {SIZE_MAX}")
        return found

    policy = annotations.get(ANNOTATION_GANG_POLICY, "").strip() or "fail"
    if policy not in _POLICIES:
        problems.append(f"{ANNOTATION_GANG_POLICY}: {policy[:80]!r} must be one of {', '.join(_POLICIES)}")
    # What was published is no wish: another job may have another size.
    is_published = bool(annotations.get(ANNOTATION_GANG_RANK))
    found = GangOptions(
        size=whole(ANNOTATION_GANG_REQUESTED_SIZE if is_published else ANNOTATION_GANG_SIZE),
        members_per_node=whole(ANNOTATION_GANG_MEMBERS_PER_NODE) or 1,
        min_available=whole(ANNOTATION_GANG_MIN_AVAILABLE),
        policy=_POLICIES.get(policy, "fail"),
    )
    return found, tuple(problems)


def published_size(annotations: Mapping[str, str]) -> int | None:
    """Return how many its gang were told to be when this member was about to be bound."""
    text = annotations.get(ANNOTATION_GANG_SIZE, "").strip()
    return _count(text) if annotations.get(ANNOTATION_GANG_RANK) else None


def published_rank(annotations: Mapping[str, str]) -> int | None:
    """Return the rank that this member was told when it was about to be bound."""
    text = annotations.get(ANNOTATION_GANG_RANK, "")
    return int(text) if _is_number(text) else None


def order(index: str, name: str) -> tuple[tuple[int, ...], str]:
    """Return by what members are sorted: their workload's own count, then their names, 2 before 10."""
    counted = tuple(int(part) if _is_number(part) else _LAST for part in index.split("."))
    return counted, natural_order(name)


def natural_order(name: str) -> str:
    """Return a key by which ``node-2`` comes before ``node-10``: texts as they are, numbers by their value.

    One text, for thousands are compared in one step, and a name may have a hundred numbers.
    """
    parts = re.split(r"([0-9]+)", name)
    return "".join(_valued(part) if place % 2 else f"{part}\0" for place, part in enumerate(parts))


def _valued(digits: str) -> str:
    """Return a text by which more digits come after fewer."""
    found = digits.lstrip("0")
    return chr(len(found)) + found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def _count(text: str) -> int | None:
    return int(text) if _is_number(text) and 1 <= int(text) <= SIZE_MAX else None
