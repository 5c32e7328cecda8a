"""Every metric of the client. ``call`` is a kind of call, such as ``nodes`` or ``job_submit``."""

from prometheus_client import Counter, Gauge, Histogram

CALL_SECONDS = Histogram(
    "sunk_slurm_call_duration_seconds",
    "Time of one request to slurmrestd, by kind of call and outcome.",
    ["call", "outcome"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
ANSWER_BYTES = Counter("sunk_slurm_answer_bytes_total", "Bytes of slurmrestd's answers.", ["call"])
CIRCUIT_OPEN = Gauge(
    "sunk_slurm_circuit_open", "1 while the service sends a slurmrestd only probes.", ["server"]
)
WAITING = Gauge("sunk_slurm_calls_waiting", "Calls that wait for a free connection.", ["server"])
