from prometheus_client.parser import text_string_to_metric_families

from sunk_metrics_exporter.render import render
from sunk_metrics_exporter.series import TABLE, Series


def test_prometheus_reads_back_what_was_written() -> None:
    name = 'a "b"\\c\nd'
    text = render(
        {
            "slurm_job_state": [(("gpu", "lab", "ada", "7", name, "running"), 1)],
            "slurm_nodes_total": [((), 3)],
            "slurm_scheduler_cycle_mean_seconds": [((), 0.000125)],
        }
    )

    read = {
        sample.name: (sample.labels.get("name"), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read == {
        "slurm_job_state": (name, 1.0),
        "slurm_nodes_total": (None, 3.0),
        "slurm_scheduler_cycle_mean_seconds": (None, 0.000125),
    }


def test_a_metric_that_slurm_said_nothing_of_is_left_out() -> None:
    assert render({"slurm_nodes_total": []}) == ""


def test_each_metric_is_declared_once() -> None:
    assert len({series.name for series in TABLE}) == len(TABLE)
    text = render({"m": [(("x",), 1), (("y",), 2)]}, [Series("m", "Help.", ("l",))])

    assert text == '# HELP m Help.\n# TYPE m gauge\nm{l="x"} 1\nm{l="y"} 2\n'
