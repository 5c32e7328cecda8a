"""From what Slurm shows of partitions and of its scheduler to their states on the bus.

slurmctld counts durations in microseconds, the bus in seconds.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.nodes import RpcStatistic, SlurmPartitionState, SlurmReservationState, SlurmStatisticsState
from sunk_slurm.diag import Diag
from sunk_slurm.partitions import Partition
from sunk_slurm.reservations import Reservation

MICROSECONDS: Final = 1e-6


def partition_state(seen: Partition, now: datetime) -> SlurmPartitionState:
    """Return *seen* as others may read it."""
    return SlurmPartitionState(
        changed=now,
        partition=seen.name,
        state="+".join(seen.partition.state) or "UNKNOWN",
        nodes=seen.nodes.configured,
        nodes_total=max(seen.nodes.total, 0),
        cpus_total=max(seen.cpus.total, 0),
    )


def reservation_state(seen: Reservation, now: datetime) -> SlurmReservationState:
    """Return *seen* as others may read it."""
    return SlurmReservationState(
        changed=now,
        reservation=seen.name,
        nodes=seen.node_list,
        nodes_total=max(seen.node_count, 0),
        cores_total=max(seen.core_count, 0),
        partition=seen.partition,
        flags=tuple(sorted(flag.upper() for flag in seen.flags)),
        users=_names(seen.users),
        accounts=_names(seen.accounts),
        starts=seen.start_time.moment,
        ends=seen.end_time.moment,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def statistics_state(seen: Diag, now: datetime) -> SlurmStatisticsState:
    """Return *seen* as others may read it, RPC kinds sorted by name."""
    return SlurmStatisticsState(
        changed=now,
        threads=max(seen.server_thread_count, 0),
        agent_queue=max(seen.agent_queue_size, 0),
        dbd_queue=max(seen.dbd_agent_queue_size, 0),
        jobs_submitted=max(seen.jobs_submitted, 0),
        jobs_started=max(seen.jobs_started, 0),
        jobs_completed=max(seen.jobs_completed, 0),
        jobs_canceled=max(seen.jobs_canceled, 0),
        jobs_failed=max(seen.jobs_failed, 0),
        jobs_pending=max(seen.jobs_pending, 0),
        jobs_running=max(seen.jobs_running, 0),
        cycle_last_s=seen.schedule_cycle_last * MICROSECONDS,
        cycle_mean_s=seen.schedule_cycle_mean * MICROSECONDS,
        cycle_mean_depth=float(seen.schedule_cycle_mean_depth),
        cycles_per_minute=float(seen.schedule_cycle_per_minute),
        queue_length=max(seen.schedule_queue_length, 0),
        backfill_cycle_last_s=seen.bf_cycle_last * MICROSECONDS,
        backfill_cycle_mean_s=seen.bf_cycle_mean * MICROSECONDS,
        backfill_depth_mean=float(seen.bf_depth_mean),
        backfilled_jobs=max(seen.bf_backfilled_jobs, 0),
        backfilled_jobs_since_cycle=max(seen.bf_last_backfilled_jobs, 0),
        backfilled_het_jobs=max(seen.bf_backfilled_het_jobs, 0),
        rpcs=tuple(
            RpcStatistic(
                message_type=rpc.message_type,
                count=max(rpc.count, 0),
                mean_duration_s=(rpc.average_time.value or 0) * MICROSECONDS,
            )
            for rpc in sorted(seen.rpcs_by_message_type, key=lambda rpc: rpc.message_type)
        ),
    )


def of_earlier_leader(published: SlurmStatisticsState, stored: datetime) -> SlurmStatisticsState:
    """Return what an earlier leader *published*, with no moment later than it was *stored*, on our clock.

    That leader's clock may be ahead of ours: its moments all go back by as much, else its lists look fresh.
    """
    moments = published.nodes_answered, published.jobs_answered, published.partitions_answered
    newest = max(moment for moment in (published.changed, *moments) if moment is not None)
    ahead = max(newest - stored, timedelta())
    nodes, jobs, partitions = (None if moment is None else moment - ahead for moment in moments)
    return replace(
        published,
        changed=published.changed - ahead,
        nodes_answered=nodes,
        jobs_answered=jobs,
        partitions_answered=partitions,
    )
