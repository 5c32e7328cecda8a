"""The states of a made-up cluster that fills the bus: a part of ``exporter``."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.nodes import RpcStatistic, SlurmNodeState, SlurmPartitionState, SlurmStatisticsState


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def node(number: int) -> SlurmNodeState:
    """Return the state of a node; one in fifty is drained."""
    is_drain = number % 50 == 0
    return SlurmNodeState(
        changed=now(),
        node=f"gpu-{number:05}",
        state="IDLE" if is_drain else "MIXED",
        flags=("DRAIN",) if is_drain else (),
        reason="k8s: cordon: bench" if is_drain else "",
        reason_changed=now() if is_drain else None,
        is_drain=is_drain,
        is_busy=not is_drain,
        cpus=128,
        cpus_allocated=number % 128,
        memory_mib=2_000_000,
        gpus=8,
        gpus_allocated=number % 9,
        partitions=("gpu", f"rack-{number % 20}"),
    )


def job(number: int, nodes: int, *, is_running: bool) -> SlurmJobState:
    """Return the state of a job; one that runs holds two nodes."""
    first = number * 2 % max(nodes - 1, 1)
    held = f"gpu-[{first:05}-{first + 1:05}]" if is_running else ""
    return SlurmJobState(
        changed=now(),
        job=number,
        state="RUNNING" if is_running else "PENDING",
        is_running=is_running,
        name=f"train-{number % 97}",
        user=f"user{number % 200}",
        account=f"lab{number % 20}",
        partition="gpu",
        nodes=held,
        allocations=(Allocation(nodes=held, cpus=16, memory_mib=64_000, gpus=1),) if is_running else (),
        submitted=now() - timedelta(hours=1),
        started=now() if is_running else None,
    )


def others() -> Iterable[tuple[str, State]]:
    """Yield what is beside nodes and jobs, by key."""
    for name in ("gpu", *(f"rack-{number}" for number in range(20))):
        yield name, SlurmPartitionState(changed=now(), partition=name, state="UP")
    rpcs = tuple(RpcStatistic(message_type=f"REQUEST_{number}", count=number) for number in range(40))
    yield subjects.STATISTICS_KEY, SlurmStatisticsState(changed=now(), rpcs=rpcs)
