"""Every metric of the locks."""

from prometheus_client import Counter, Histogram

LOCK_SECONDS = Histogram(
    "sunk_lock_wait_seconds",
    "Time from a job's first question to its lock, by level.",
    ["level"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
LOCK_WRITES = Counter(
    "sunk_lock_writes_total", "Writes of a lock to its Node, by value and outcome.", ["value", "outcome"]
)
