# pyright: reportUnknownVariableType=false
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families

from sunk_metrics_exporter.accept import wants_gzip, wants_open
from sunk_metrics_exporter.render import head, line
from sunk_metrics_exporter.series import TABLE, Series


def test_a_line_has_the_labels_in_the_tables_order() -> None:
    text = line("slurm_node_state", ("gpu-1", 'a "b"\\c\nd', "idle"), 1)

    assert text == 'slurm_node_state{node="gpu-1",partition="a \\"b\\"\\\\c\\nd",state="idle"} 1\n'
    assert (
        line("slurm_scheduler_cycle_mean_seconds", (), 0.000125)
        == "slurm_scheduler_cycle_mean_seconds 0.000125\n"
    )


def test_each_metric_is_declared_once() -> None:
    assert len({series.name for series in TABLE}) == len(TABLE)
    assert head(Series("m", "Help."), is_open=False) == "# HELP m Help.\n# TYPE m gauge\n"


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("slurm_things_total", "slurm_things counter"),
        ("slurm_things_count", "slurm_things_count unknown"),
    ],
)
def test_openmetrics_accepts_counters_by_the_documents_names(name: str, declared: str) -> None:
    text = head(Series(name, "Help.", (), "counter"), is_open=True) + f"{name} 3\n# EOF\n"

    assert f"# TYPE {declared}\n" in text
    (family,) = open_families(text)
    assert [(sample.name, sample.value) for sample in family.samples] == [(name, 3)]


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        ("text/plain", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_openmetrics_goes_to_who_asks_for_it(accept: str, wanted: bool) -> None:  # noqa: FBT001 - a table's column
    assert wants_open(accept) == wanted


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("", False)],
)
def test_gzip_goes_to_who_takes_it(accept: str, wanted: bool) -> None:  # noqa: FBT001 - a table's column
    assert wants_gzip(accept) == wanted
