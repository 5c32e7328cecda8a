"""Writes a golden file for each type of the contract that has none; one that exists is never touched.

A golden file is what some running version wrote once: every field that its type had then, filled with what
it would hold on a real cluster. A field without an example here is an error, so a new one gets its own.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from sunk_events.base import Event
from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import tag_of

GOLDEN: Final = Path(__file__).parent.parent / "tests/contract/golden"

_UID: Final = "6f1c2f0e-8a58-4a3b-9a57-0c2f6f1d9e11"
_SHA256: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_DRAIN: Final = "k8s: cordon: replace the power supply"

EXAMPLES: Final[dict[str, Any]] = {
    "account": "physics",
    "address": "10.201.1.12",
    "admin_comment": "k8s pod scheduler",
    "array_job": 4700,
    "array_tasks": 8,
    "attempt": 1,
    "booted": datetime(2026, 1, 14, 6, 0, 0, tzinfo=UTC),
    "cause": "pod_not_ready:gpu-000-012:1699",
    "changed": datetime(2026, 1, 15, 9, 30, 0, 250000, tzinfo=UTC),
    "code": "unknown_node",
    "cordon_reason": "replace the power supply",
    "cpus": 32,
    "created": datetime(2026, 1, 15, 9, 29, 58, tzinfo=UTC),
    "deadline": datetime(2026, 1, 15, 9, 34, 30, tzinfo=UTC),
    "ended": datetime(2026, 1, 15, 10, 0, 0, tzinfo=UTC),
    "exit_code": 0,
    "extra": '{"sunk":{"pod":"gpu-000-012"}}',
    "features": ("gpu", "h100"),
    "flags": ("DRAIN", "DYNAMIC_NORM"),
    "gpus": 8,
    "granted": datetime(2026, 1, 15, 9, 30, 1, tzinfo=UTC),
    "gres": "gpu:h100:8",
    "hpc_verified": datetime(2026, 1, 15, 8, 0, 0, tzinfo=UTC),
    "in_the_way": ("default/web-5c9f8-x2x7k",),
    "is_busy": False,
    "is_completing": False,
    "is_condemned": False,
    "is_cordoned": True,
    "is_cut": False,
    "is_dependency_pending": False,
    "is_down": False,
    "is_drain": True,
    "is_drained_and_idle": True,
    "is_known": True,
    "is_not_responding": False,
    "is_over": False,
    "is_overdue": False,
    "is_pod_gone": True,
    "is_pod_present": True,
    "is_ready": True,
    "is_running": True,
    "job": 4711,
    "jobs": (4711,),
    "kube_node": "node2",
    "level": "strict",
    "lock": "pending",
    "memory_mib": 262144,
    "name": "train",
    "namespace": "slurm",
    "node": "gpu-000-012",
    "nodes": "gpu-000-[012-013]",
    "nodes_total": 2,
    "cpus_total": 64,
    "nodeset": "gpu",
    "on": "$KV.SUNK_lab_slurm_node.gpu-000-012",
    "partition": "batch",
    "partitions": ("all", "batch"),
    "payload": b'{"type":"sunk.syncer.v1.slurm_node","node":7}',
    "phase": "running",
    "pod": "gpu-000-012",
    "pod_address": "10.201.1.12",
    "qos": "normal",
    "reason": _DRAIN,
    "reason_changed": datetime(2026, 1, 15, 9, 30, 0, tzinfo=UTC),
    "reason_user": "slurm",
    "retry_after_s": 1.5,
    "slurmd_started": datetime(2026, 1, 14, 6, 1, 0, tzinfo=UTC),
    "started": datetime(2026, 1, 15, 9, 30, 0, tzinfo=UTC),
    "state": "IDLE",
    "status": 200,
    "submitted": datetime(2026, 1, 15, 9, 29, 59, tzinfo=UTC),
    "time": datetime(2026, 1, 15, 9, 30, 0, 250000, tzinfo=UTC),
    "token": _SHA256,
    "token_sha256": _SHA256,
    "uid": _UID,
    "user": "alice",
    "user_id": 1001,
    "waited_s": 0.75,
}
"""What a field of that name holds, wherever it stands."""

SPECIAL: Final[dict[tuple[str, str], Any]] = {
    ("DeadMessage", "reason"): "sunk.syncer.v1.slurm_node: Expected `str`, got `int` - at `$.node`",
    ("NodeConfirmed", "state"): "IDLE",
    ("NodeCordonSnapshot", "reason"): "replace the power supply",
    ("PodSnapshot", "reason"): "containers with unready status: [slurmd]",
    ("SlurmNodeState", "cpus_allocated"): 0,
    ("SlurmNodeState", "gpus_allocated"): 0,
    ("SlurmNodeState", "memory_allocated_mib"): 0,
    ("SlurmJobState", "het_job"): None,
    ("SlurmStatisticsState", "cycle_mean_depth"): 17.5,
    ("SlurmStatisticsState", "cycles_per_minute"): 12.0,
    ("SlurmStatisticsState", "backfill_depth_mean"): 30.25,
    ("JobNotRunning", "state"): "CANCELLED",
    ("JobSnapshot", "flags"): (),
    ("JobSnapshot", "state"): "RUNNING",
    ("Later", "reason"): "state SUNK_lab_placement is not read yet",
    ("PlacementReleased", "pod"): "default/train-0",
    ("PlacementSnapshot", "namespace"): "default",
    ("PlacementSnapshot", "pod"): "train-0",
    ("PlacementSnapshot", "reason"): "",
    ("PlacementState", "exit_code"): None,
    ("PlacementState", "namespace"): "default",
    ("PlacementState", "phase"): "bound",
    ("PlacementState", "pod"): "train-0",
    ("PlacementState", "reason"): "",
    ("Refused", "reason"): "gpu-000-099 is no Slurm node",
    ("RpcStatistic", "count"): 1200,
    ("RpcStatistic", "mean_duration_s"): 0.0021,
    ("RpcStatistic", "message_type"): "REQUEST_PARTITION_INFO",
    ("SlurmJobState", "ended"): None,
    ("SlurmJobState", "exit_code"): None,
    ("SlurmJobState", "flags"): (),
    ("SlurmJobState", "reason"): "",
    ("SlurmJobState", "state"): "RUNNING",
    ("SlurmPartitionState", "state"): "UP",
}
"""Where a name alone does not tell."""

BY_EVENT: Final[dict[str, dict[str, Any]]] = {
    "JobEnded": {"state": "COMPLETED"},
    "JobRequeued": {"state": "PENDING", "nodes": "", "exit_code": None},
    "JobStarted": {"exit_code": None},
    "JobSubmitted": {"state": "PENDING", "nodes": "", "exit_code": None},
    "LockLocked": {"lock": "locked", "in_the_way": ()},
    "LockPending": {"waited_s": None},
    "LockUnlocked": {"lock": "false", "jobs": (), "in_the_way": (), "waited_s": None},
    "NodeUncordoned": {"reason": ""},
    "NodeDown": {"state": "DOWN", "flags": ("NOT_RESPONDING",), "reason": "Not responding"},
    "NodeDraining": {"state": "ALLOCATED"},
    "NodeRegistered": {"flags": ("DYNAMIC_NORM",), "reason": ""},
    "NodeRemoved": {"flags": ("DYNAMIC_NORM",), "reason": ""},
    "NodeUndrained": {"flags": ("DYNAMIC_NORM",), "reason": ""},
    "NodeUp": {"flags": ("DYNAMIC_NORM",), "reason": ""},
    "PlacementRefused": {"job": None, "node": "", "kube_node": "", "reason": "no CPU request"},
    "PlacementSubmitted": {"node": "", "kube_node": ""},
    "PodReady": {"reason": ""},
}
"""What the data of one fact holds instead."""


def example(kind: type[msgspec.Struct], instead: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance of *kind*
    """Return an instance of *kind* with every field filled, *instead* going before the tables."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in instead:
            values[field.name] = instead[field.name]
        elif (kind.__name__, field.name) in SPECIAL:
            values[field.name] = SPECIAL[kind.__name__, field.name]
        elif struct := struct_of(field.type):
            one = example(struct, BY_EVENT.get(kind.__name__, {}))
            values[field.name] = (one,) if get_origin(field.type) is tuple else one
        elif field.name in EXAMPLES:
            values[field.name] = EXAMPLES[field.name]
        elif issubclass(kind, Event) and field.name in {"specversion", "datacontenttype"}:
            continue
        elif field.type is float or "ge=0" in repr(field.type):
            values[field.name] = 0.012 if field.type is float else 42
        else:
            raise SystemExit(f"no example for {kind.__name__}.{field.name}: add one to {__file__}")
    return kind(**values)


def struct_of(annotation: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - any annotation of a field
    """Return the struct in *annotation*, alone or in a tuple or union."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    if get_origin(annotation) in {tuple, Union, UnionType}:
        return next(filter(None, map(struct_of, get_args(annotation))), None)
    return None


def event_example(kind: type[Event]) -> Event:
    """Return an event about the entity that its data names."""
    owner, _, name = tag_of(kind).removeprefix("sunk.").partition(".v1.")
    data = next(field.type for field in msgspec.structs.fields(kind) if field.name == "data")
    names = [field.name for field in msgspec.structs.fields(data)]
    entity = next(EXAMPLES[name] for name in ("uid", "node", "pod", "job", "on") if name in names)
    if owner == "nodeset_controller":
        entity = EXAMPLES["kube_node" if "cordon" in name else "node"]
    if owner == "any":
        owner = "metrics_exporter"
    return example(
        kind,
        {
            "id": f"{name}:{entity}:1718",
            "source": f"/lab/{owner.replace('_', '-')}",
            "subject": str(entity),
        },
    )


def main() -> None:
    """Write what is missing."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    makers: dict[type[msgspec.Struct], Callable[[], Any]] = {
        **{kind: partial(event_example, kind) for kind in EVENTS},
        **{kind: partial(example, kind, {}) for kind in (*STATES, *REQUESTS, *REPLIES)},
    }
    for kind, make in makers.items():
        path = GOLDEN / f"{tag_of(kind)}.json"
        if not path.exists():
            path.write_bytes(msgspec.json.format(msgspec.json.encode(make())) + b"\n")
            print(f"wrote {path.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
