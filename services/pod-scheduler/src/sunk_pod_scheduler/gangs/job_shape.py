"""What all members of a gang have in common, as one job has one of each, and what they need on each node."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from sunk_events.placements import PlacementState
from sunk_pod_scheduler.gangs.model import MemberSeen
from sunk_pod_scheduler.podspec import job_size
from sunk_pod_scheduler.podspec.validation import ValidatedPod


def common(wanted: ValidatedPod) -> tuple[object, ...]:
    """Return what must be the same for all: everything but amounts."""
    gpu_type = wanted.gpu_type if wanted.gpus else ""
    return wanted.requested, wanted.identity, gpu_type, bool(wanted.gpus)


@lru_cache(maxsize=64)
def shape(wanted: ValidatedPod) -> str:
    """Return a digest of `common`, in hex: it is stored, so that later members can be compared with it.

    What is not given does not count, so that a version that knows of more to ask has the same digest.
    """
    requested, *others = common(wanted)
    given = {
        key: value for key, value in msgspec.to_builtins(requested).items() if value not in (None, "", [])
    }
    return hashlib.sha256(msgspec.json.encode((given, *others), order="sorted")).hexdigest()


def needs_by_node(
    record: PlacementState | None, members: Mapping[str, MemberSeen]
) -> Mapping[str, job_size.Size]:
    """Return what those of *members* that have a seat and run need, by Slurm node."""
    gang = None if record is None else record.roster
    if gang is None:
        return {}
    run = Counter(
        seat.node
        for seat in gang.members
        if seat.node and (one := members.get(seat.uid)) is not None and one.is_on_node
    )
    return {
        node: job_size.Size(cpus=gang.cpus * many, memory_mib=gang.memory_mib * many, gpus=gang.gpus * many)
        for node, many in run.items()
    }
