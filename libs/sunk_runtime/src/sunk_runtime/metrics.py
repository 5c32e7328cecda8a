"""Every metric of the chassis. Services have their own `metrics.py`."""

from prometheus_client import Counter, Gauge, Histogram

FACTS = Counter("sunk_facts_published_total", "Facts published, by type.", ["type"])
FACTS_REFUSED = Counter(
    "sunk_facts_refused_total", "Facts that were not stored because their stream was full, by type.", ["type"]
)
BUS_FULL = Gauge("sunk_bus_full", "1 while the last write to NATS was refused for lack of space.")
DEAD_LETTERS = Counter("sunk_dead_letters_total", "Messages that could not be handled.", ["reason"])
EVENTS_SETTLED = Counter(
    "sunk_events_settled_total", "Deliveries settled, by consumer and verdict.", ["consumer", "verdict"]
)
EVENTS_REDELIVERED = Counter(
    "sunk_events_redelivered_total", "Deliveries that were not the first of their fact.", ["consumer"]
)
EVENT_LAG = Gauge("sunk_event_lag", "Facts that wait behind the last delivered one.", ["consumer"])
EVENTS_HELD = Gauge(
    "sunk_events_held", "Deliveries that were received and are not settled yet.", ["consumer"]
)
KEYS_HANDLED = Counter("sunk_keys_handled_total", "Keys looked at, by loop and outcome.", ["loop", "outcome"])
KEY_SECONDS = Histogram(
    "sunk_key_duration_seconds",
    "Time of one look at one key.",
    ["loop"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)
KEYS_BLOCKED = Counter(
    "sunk_keys_blocked_total", "Looks at keys that blocked the event loop for too long, by loop.", ["loop"]
)
KEYS_WAITING = Gauge("sunk_keys_waiting", "Keys that wait for their turn.", ["loop"])
VIEW_COMPLETE = Gauge("sunk_view_complete", "1 when a state view has read its whole bucket.", ["bucket"])
VIEW_AGE = Gauge(
    "sunk_view_age_seconds",
    "Time since the server last sent something for a state view; after a few seconds the view may be stale.",
    ["bucket"],
)
VIEW_KEYS = Gauge("sunk_view_keys", "Keys that a state view holds.", ["bucket"])
VIEW_READS = Counter(
    "sunk_view_reads_total", "Whole reads of a bucket: one at start, and one after each gap.", ["bucket"]
)
LEADER = Gauge("sunk_leader", "1 while this process holds the lease.", ["lease"])
REQUESTS = Counter(
    "sunk_requests_answered_total", "Questions answered, by kind and reply.", ["kind", "reply"]
)
CONNECTED = Gauge("sunk_bus_connected", "1 while there is a connection to NATS.")
RECONNECTS = Counter("sunk_bus_reconnects_total", "How often the service connected to NATS again.")
PUBLISH_SECONDS = Histogram(
    "sunk_publish_duration_seconds",
    "Time from a publish to its acknowledgement, retries included.",
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 15),
)
PUBLISHES_FAILED = Counter(
    "sunk_publishes_failed_total",
    "Publishes that failed: conflict, refused, unavailable, or fenced off.",
    ["reason"],
)
PUBLISH_RETRIES = Counter(
    "sunk_publish_retries_total", "Publishes repeated because no server led the stream."
)
CLOCK_SKEW = Gauge("sunk_clock_skew_seconds", "How far the server's clock is ahead of this service's.")
CONNECTIONS_CUT = Counter(
    "sunk_http_connections_cut_total",
    "HTTP connections over a limit, by limit: the gateway ended a waiting one, or refused the new one.",
    ["bound"],
)
for _bound in ("address", "all"):
    CONNECTIONS_CUT.labels(_bound)  # Made now: a counter that begins with its first 1 shows no increase.
