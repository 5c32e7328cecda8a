"""Every metric of the exporter itself; what it tells of Slurm stands in `series`."""

from prometheus_client import Counter, Gauge, Histogram

FACTS = Counter("sunk_facts_total", "Facts seen on the bus, by type.", ["type"])
STATE_AGE = Gauge(
    "sunk_state_age_seconds",
    "Time since the newest Slurm state on the bus; the slurm_ series are left out when it is too old.",
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
    "Jobs without series of their own because the cap on them is hit; they are in every sum all the same.",
)
