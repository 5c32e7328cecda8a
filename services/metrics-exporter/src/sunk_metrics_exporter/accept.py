"""Which form of a scrape its caller takes.

Source: RFC 9110, sections 12.4.2, 12.5.1 and 12.5.3.
"""

from collections.abc import Iterator
from typing import Final

OPEN: Final = "application/openmetrics-text"


def wants_open(accept: str) -> bool:
    """Whether OpenMetrics is taken, and no less gladly than Prometheus' own text format."""
    weights = dict(_weighed(accept))
    return weights.get(OPEN, 0.0) > 0 and weights[OPEN] >= weights.get("text/plain", 0.0)


def wants_gzip(accept: str) -> bool:
    """Whether gzip is named and taken; who names no encoding gets none."""
    return dict(_weighed(accept)).get("gzip", 0.0) > 0


def _weighed(header: str) -> Iterator[tuple[str, float]]:
    for part in header.split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        weights = [word[2:] for word in parameters if word.startswith("q=")]
        yield name, _weight(weights[0]) if weights else 1.0


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
