"""Every metric of this service but the locks' own."""

from prometheus_client import Counter, Gauge

WRITES = Counter("sunk_nodeset_writes_total", "Writes to the API server, by what was written.", ["write"])
SLURM_IS_KNOWN = Gauge(
    "sunk_nodeset_slurm_known",
    "1 while what Slurm says of a NodeSet is known and of now.",
    ["nodeset"],
)
