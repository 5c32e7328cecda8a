"""Which form of a scrape its caller gets: prometheus-client chooses."""

import pytest

from sunk_metrics_exporter.controllers.scrapes import OPENMETRICS, chosen_format

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=many", False),
        ("text/plain;version=\r\nX-Header: 1", False),
        ("text/plain", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_openmetrics_goes_to_a_caller_that_asks_for_it(accept: str, is_open: bool) -> None:  # noqa: FBT001 - a table's column
    _, content_type = chosen_format(accept)

    assert content_type.startswith(OPENMETRICS) == is_open
    assert "X-Header" not in content_type
