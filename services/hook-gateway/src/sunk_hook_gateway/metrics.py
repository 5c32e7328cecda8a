"""Every metric of the hook gateway."""

from prometheus_client import Counter, Gauge, Histogram

CALLS = Counter("sunk_hook_calls_total", "Hook calls answered, by call and HTTP status.", ["call", "status"])
CALLS_WITHOUT_TLS = Counter(
    "sunk_hook_calls_without_tls_total",
    "Hook calls of known callers without TLS although there is a certificate, by call.",
    ["call"],
)
CALL_SECONDS = Histogram(
    "sunk_hook_call_duration_seconds",
    "Time from a hook call to its answer.",
    ["call"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300),
)
CALLS_HELD = Gauge("sunk_hook_calls_held", "Hook calls under way.", ["call"])
CALLS_NOT_LET_IN = Gauge(
    "sunk_hook_calls_not_let_in",
    "Hook calls whose caller is not known yet: they wait for keys, or for the state of their Pod or job.",
)
REFUSALS = Counter(
    "sunk_hook_refusals_total",
    "Prologs refused at their deadline, by the answer: drain the node, hold or requeue the job.",
    ["answer"],
)
for _answer in ("drain", "hold", "requeue"):
    REFUSALS.labels(_answer)  # Made now: a counter that begins with its first 1 shows no increase.
HANG_UPS = Counter(
    "sunk_hook_hang_ups_total", "Callers that ended the connection before the gateway answered.", ["call"]
)
TRUST_READS = Counter(
    "sunk_hook_trust_reads_total", "Reads of the keys that Pod tokens are signed with.", ["outcome"]
)
CERTIFICATE_START = Gauge(
    "sunk_hook_certificate_start_timestamp_seconds",
    "When the certificate for new connections became valid.",
    ["file"],
)
CERTIFICATE_END = Gauge(
    "sunk_hook_certificate_end_timestamp_seconds",
    "When the certificate for new connections expires.",
    ["file"],
)
