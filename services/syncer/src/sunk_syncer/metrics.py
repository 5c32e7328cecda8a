"""Every metric of the syncer; the chassis has its own."""

from prometheus_client import Counter, Gauge, Histogram

ANSWERED = Gauge(
    "sunk_syncer_answered_timestamp_seconds",
    "When Slurm last answered a question about everything of a kind: the state on the bus is that old.",
    ["kind"],
)
POLL_SECONDS = Histogram(
    "sunk_syncer_poll_duration_seconds",
    "Time of one answer about everything of a kind.",
    ["kind", "outcome"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
LOOKS = Counter("sunk_syncer_looks_total", "Looks at single nodes and jobs.", ["kind"])
DOUBTED = Counter(
    "sunk_syncer_doubted_answers_total",
    "Answers that lacked too much of what was known to be believed.",
    ["kind"],
)
ACTIONS = Counter("sunk_syncer_actions_total", "Changes of Slurm nodes that were carried out.", ["action"])
