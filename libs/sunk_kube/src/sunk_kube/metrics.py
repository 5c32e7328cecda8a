"""Every metric of this library."""

from prometheus_client import Counter, Gauge

REQUESTS = Counter("sunk_kube_requests_total", "Calls to the API server.", ["verb", "resource", "outcome"])
WAITED = Counter(
    "sunk_kube_pace_waited_seconds_total",
    "How long calls waited for the service's own rate limit, or because the API server requested a pause.",
)
VIEW_COMPLETE = Gauge("sunk_kube_view_complete", "1 when a view has read its whole list.", ["resource"])
VIEW_READS = Counter(
    "sunk_kube_view_reads_total", "Whole lists read: one at start, and one after each gap.", ["resource"]
)
VIEW_CONTACT = Gauge(
    "sunk_kube_view_heard_timestamp_seconds",
    "When a view last received something from the API server.",
    ["resource"],
)
