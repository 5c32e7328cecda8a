# pyright: reportUnknownVariableType=false
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families

from sunk_metrics_exporter.slurm_metrics.table import TABLE, Series
from sunk_metrics_exporter.slurm_metrics.text import head, line


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
