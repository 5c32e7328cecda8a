"""Every metric of this service but the locks' own."""

from prometheus_client import Counter, Gauge

WRITES = Counter("sunk_nodeset_writes_total", "Writes to the API server, by what was written.", ["write"])
NATS_CERTIFICATE_START = Gauge(
    "sunk_nats_certificate_start_timestamp_seconds",
    "When the certificate of NATS in its Secret became valid; 0 if it was never readable.",
    ["file"],
)
NATS_CERTIFICATE_END = Gauge(
    "sunk_nats_certificate_end_timestamp_seconds",
    "When the certificate of NATS in its Secret expires; 0 if it was never readable.",
    ["file"],
)
SLURM_IS_KNOWN = Gauge(
    "sunk_nodeset_slurm_known",
    "1 while Slurm's state of a NodeSet is known and current.",
    ["nodeset"],
)
