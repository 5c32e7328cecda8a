"""Every metric of the exporter itself; what it tells of Slurm stands in `slurm_metrics.table`."""

from prometheus_client import Counter, Gauge, Histogram

FACTS = Counter("sunk_facts_total", "Facts seen on the bus, by type.", ["type"])
STATE_AGE = Gauge(
    "sunk_state_age_seconds",
    "Age of Slurm's state on the bus, by kind; if it is too old, there are no slurm_ series of that kind.",
    ["kind"],
)
LOCK_SECONDS = Histogram(
    "sunk_lock_pending_duration_seconds",
    "Time that a Node's lock was pending before the Node was locked.",
    buckets=(0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 120),
)
BIND_SECONDS = Histogram(
    "sunk_placement_bind_seconds",
    "Time from a Pod's creation to its binding to the Node that Slurm chose.",
    buckets=(0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200),
)
SCRAPE_SECONDS = Histogram(
    "sunk_scrape_duration_seconds",
    "Time to answer one scrape.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
)
SCRAPE_BYTES = Gauge("sunk_scrape_size_bytes", "Size of the last scrape before compression.")
JOB_SERIES = Gauge("sunk_job_series", "Series that single jobs have in the last scrape.")
JOBS_WITHOUT_SERIES = Gauge(
    "sunk_jobs_without_series",
    "Jobs without series of their own, because the limit on them is reached; all sums include them.",
)
FACT_DELAY_SECONDS = Histogram(
    "sunk_fact_delay_seconds",
    "Time from what a fact reports to its arrival here.",
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 60, 600),
)
JOB_WAIT_SECONDS = Histogram(
    "sunk_job_wait_seconds",
    "Time from a job's submission to its start, by partition.",
    ["partition"],
    buckets=(1, 5, 15, 60, 300, 900, 3600, 14400, 43200, 86400, 259200, 604800),
)
DRAIN_SECONDS = Histogram(
    "sunk_drain_duration_seconds",
    "Duration of drains that have ended, by owner (kubernetes, slurm, person) and cause.",
    ["owner", "cause"],
    buckets=(1, 10, 60, 300, 900, 3600, 14400, 86400, 604800),
)
DRAINED_NODES = Gauge("sunk_drained_nodes", "Nodes that are drained, by owner and cause.", ["owner", "cause"])
DRAIN_OLDEST = Gauge(
    "sunk_drain_oldest_age_seconds", "Age of the oldest drain, by owner and cause.", ["owner", "cause"]
)
DRAINS_WITHOUT_CAUSE = Gauge(
    "sunk_drains_without_cause",
    "Nodes with a drain by the services (`k8s:`) whose cause is gone, by that cause.",
    ["cause"],
)
DRAIN_WITHOUT_CAUSE_OLDEST = Gauge(
    "sunk_drain_without_cause_oldest_age_seconds",
    "Longest time that a drain by the services has lasted beyond the end of its cause, by that cause.",
    ["cause"],
)
LOCKS = Gauge("sunk_locks", "Locks of Nodes, by value.", ["lock"])
LOCK_OLDEST = Gauge(
    "sunk_lock_pending_oldest_age_seconds", "Age of the oldest lock that is still pending; 0 if none is."
)
PLACEMENTS = Gauge("sunk_placements", "Pods that Slurm places, by phase.", ["phase"])
PLACEMENT_OLDEST = Gauge(
    "sunk_placement_waiting_oldest_age_seconds",
    "Age of the oldest Pod that waits for its binding; 0 if none does.",
)
