"""Every metric of the pod-scheduler."""

from prometheus_client import Counter, Histogram

ACTIONS = Counter("sunk_placement_actions_total", "Steps taken for Pods, by kind.", ["action"])
BOUND_SECONDS = Histogram(
    "sunk_placement_bound_duration_seconds",
    "From a Pod's creation to its binding.",
    buckets=(0.1, 0.2, 0.3, 0.5, 1, 2, 5, 15, 60, 300, 1800, 7200, 43200),
)
JOBS_LOST = Counter("sunk_placement_jobs_lost_total", "Placeholder jobs that ended before their Pod did.")
JOBS_UNKNOWN = Counter(
    "sunk_placement_jobs_unknown_total",
    "Jobs of running Pods that Slurm did not know any more (lost), and Pods that have one again (found).",
    ["became"],
)
DOUBLED = Counter(
    "sunk_placement_doubled_marks_total",
    "Looks at a job that has the mark of another Pod's job, or at a second job with the same mark.",
)
ORPHANS = Counter("sunk_placement_stray_jobs_total", "Jobs with our mark that no Pod claims, cancelled.")
