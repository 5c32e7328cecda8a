"""Every metric of the syncer; the chassis has its own."""

from prometheus_client import Counter, Gauge, Histogram

ANSWERED = Gauge(
    "sunk_syncer_answered_timestamp_seconds",
    "When Slurm last gave a plausible answer about all objects of a kind: the state is that old.",
    ["kind"],
)
POLL_SECONDS = Histogram(
    "sunk_syncer_poll_duration_seconds",
    "Time of one answer about everything of a kind.",
    ["kind", "outcome"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
LOOKS = Counter(
    "sunk_syncer_looks_total",
    "Looks at single nodes and jobs, and at all nodes where many are drained.",
    ["kind"],
)
DOUBTED = Counter(
    "sunk_syncer_doubted_answers_total",
    "Answers that were ignored, because they lacked too many objects that were known.",
    ["kind"],
)
ACTIONS = Counter("sunk_syncer_actions_total", "Changes of Slurm nodes that were carried out.", ["action"])
REFUSED = Counter("sunk_syncer_refused_total", "Changes of Slurm nodes that Slurm refused.", ["action"])
HELD_BACK = Counter(
    "sunk_syncer_held_back_total",
    "Nodes about which nothing was decided, because something that counts was unknown.",
)
BULK_NODES = Histogram(
    "sunk_syncer_drained_together",
    "Nodes drained in one call.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200),
)
WRITES_WAITING = Gauge("sunk_syncer_drains_waiting", "Nodes that wait for their drain to be written.")
REQUEUED = Counter("sunk_syncer_requeued_jobs_total", "Jobs put back into the queue.", ["how"])
RELEASED = Counter("sunk_syncer_released_jobs_total", "Jobs released that failed locks had held.")
RECONFIGURE_SECONDS = Histogram(
    "sunk_syncer_reconfigure_duration_seconds",
    "Time that slurmctld took to read its configuration again.",
    ["outcome"],
    buckets=(0.03, 0.1, 0.3, 1, 3, 10, 30),
)
