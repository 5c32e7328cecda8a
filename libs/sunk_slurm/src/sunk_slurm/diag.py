"""What ``sdiag`` shows, as slurmrestd sends it. Durations are in microseconds here.

Source: the OpenAPI documents of slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.44), ``stats_msg``.
"""

import msgspec

from sunk_slurm.wire import NO_NUMBER, Answer, Number


class RpcCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often one kind of RPC came and how long it took."""

    message_type: str = ""
    count: int = 0
    average_time: Number = NO_NUMBER


class Diag(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of slurmctld's scheduler since they were reset."""

    req_time: Number = NO_NUMBER
    """Slurmctld's clock as it answered."""
    server_thread_count: int = 0
    agent_queue_size: int = 0
    dbd_agent_queue_size: int = 0
    schedule_cycle_last: int = 0
    schedule_cycle_mean: int = 0
    schedule_cycle_mean_depth: int = 0
    schedule_cycle_per_minute: int = 0
    schedule_queue_length: int = 0
    jobs_submitted: int = 0
    jobs_started: int = 0
    jobs_completed: int = 0
    jobs_canceled: int = 0
    jobs_failed: int = 0
    jobs_pending: int = 0
    jobs_running: int = 0
    bf_backfilled_jobs: int = 0
    bf_last_backfilled_jobs: int = 0
    bf_backfilled_het_jobs: int = 0
    bf_cycle_mean: int = 0
    bf_cycle_last: int = 0
    bf_depth_mean: int = 0
    rpcs_by_message_type: tuple[RpcCount, ...] = ()


class DiagAnswer(Answer, frozen=True, kw_only=True):
    """GET diag/."""

    statistics: Diag = Diag()
