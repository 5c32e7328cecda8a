"""Whether a job holds on its node what its Pod needs there. Pure.

A job's user may make it smaller while it waits (``scontrol update gres=gpu:0 numcpus=1 minmemorynode=1``;
seen on 24.11 and 26.05), and a Pod takes the CPUs, memory and GPUs that its spec says, whatever its job
holds: Slurm would give the rest to others.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from sunk_events.jobs import SlurmJobState
from sunk_events.placements import Gang
from sunk_slurm import gres, hostlist
from sunk_slurm.wire import Job

_MIB: Final = 1024**2


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What is held, or needed, on one node or on several."""

    cpus: int = 0
    memory_mib: int = 0
    """0 of what is held: Slurm does not count memory there."""
    gpus: int = 0


Held = Mapping[str, Size]
"""What a job holds, by node."""


def needed(requests: Mapping[str, Decimal], gpu_resources: Iterable[str]) -> Size:
    """Return what a Pod with *requests*, by resource name, takes of its node; parts are rounded up."""
    none = Decimal(0)
    return Size(
        cpus=math.ceil(requests.get("cpu", none)),
        memory_mib=math.ceil(requests.get("memory", none) / _MIB),
        gpus=math.ceil(sum((requests.get(name, none) for name in gpu_resources), none)),
    )


def held(job: Job) -> Held | None:
    """Return what *job* holds; None where slurmrestd does not say."""
    if job.job_resources is None:
        return None
    found: dict[str, Size] = {}
    for index, on_node in enumerate(job.job_resources.nodes.allocation):
        gpus = gres.gpus(job.gres_detail[index]) if index < len(job.gres_detail) else 0
        found[on_node.name] = Size(cpus=on_node.cpus.count, memory_mib=on_node.memory.allocated, gpus=gpus)
    return found


def held_on_bus(state: SlurmJobState) -> Held | None:
    """Return what the job of *state* holds; None where the bus does not say."""
    if not state.allocations:
        return None
    return {
        node: Size(cpus=one.cpus, memory_mib=one.memory_mib, gpus=one.gpus)
        for one in state.allocations
        for node in hostlist.expand(one.nodes)
    }


def add_held(found: dict[str, dict[int, Size]], state: SlurmJobState) -> int:
    """Add to *found*, by node and job, what the job of *state* holds if it runs; return on how many nodes."""
    held = held_on_bus(state) if state.state == "RUNNING" and not state.is_completing else None
    for node, size in (held or {}).items():
        found.setdefault(node, {})[state.job] = size
    return len(held or {})


def too_small(job: int, held: Held | None, node: str, needs: Size | None) -> str:
    """Return why *job* is too small for a Pod on *node*; nothing where it is not, or nobody says."""
    if held is None or needs is None:
        return ""
    return _sentence(job, node, _missing(held.get(node, Size()), needs))


def too_small_for(job: int, held: Held | None, gang: Gang) -> str:
    """Return why *job* is too small for the members of *gang* that have a seat.

    Memory and GPUs are counted by node. Where nodes have different numbers of members, which of them has
    more is Slurm's to say for tasks and ours for members: CPUs are counted of the whole job.
    """
    if held is None:
        return ""
    members: dict[str, int] = {}
    for member in gang.members:
        if member.node:
            members[member.node] = members.get(member.node, 0) + 1
    for node, count in members.items():
        needs = Size(memory_mib=gang.memory_mib * count, gpus=gang.gpus * count)
        if why := _sentence(job, node, _missing(held.get(node, Size()), needs)):
            return why
    cpus = sum(one.cpus for one in held.values())
    needs = Size(cpus=gang.cpus * sum(members.values()))
    return _sentence(job, "all its nodes", _missing(Size(cpus=cpus), needs))


def _missing(held: Size, needs: Size) -> list[str]:
    memory_mib = held.memory_mib or needs.memory_mib
    pairs = {
        "CPUs": (held.cpus, needs.cpus),
        "MiB of memory": (memory_mib, needs.memory_mib),
        "GPUs": (held.gpus, needs.gpus),
    }
    return [f"{has} of {need} {what}" for what, (has, need) in pairs.items() if has < need]


def _sentence(job: int, where: str, missing: list[str]) -> str:
    if not missing:
        return ""
    return f"job {job} holds {', '.join(missing)} on {where}: it was made smaller in Slurm while it waited"
