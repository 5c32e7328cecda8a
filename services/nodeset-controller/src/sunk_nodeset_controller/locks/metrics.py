"""Every metric of the locks."""

from prometheus_client import Counter, Gauge, Histogram

LOCK_SECONDS = Histogram(
    "sunk_lock_wait_seconds",
    "Time from a job's first question to the end of its wait, by level and outcome.",
    ["level", "outcome"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
LOCK_WRITES = Counter(
    "sunk_lock_writes_total", "Writes of a lock to its Node, by value and outcome.", ["value", "outcome"]
)
PODS_DRIVEN = Counter(
    "sunk_lock_pods_driven_out_total",
    "Pods made to leave a locked Node, by how (taint: Kubernetes does it) and outcome.",
    ["how", "outcome"],
)
DAEMONS_DRIVEN = Gauge(
    "sunk_lock_daemonsets_driven_out",
    "DaemonSets whose Pods each lock drives out, as found when this replica began to lead.",
    ["slurm_cluster"],
)
