"""Every metric of this service but the locks' own."""

from prometheus_client import Counter

WRITES = Counter("sunk_nodeset_writes_total", "Writes to the API server, by what was written.", ["write"])
