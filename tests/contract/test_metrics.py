"""Each row of the documents' table of metrics is in a scrape: name, unit, labels and type."""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.nodes import RpcStatistic, SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.slurm_metrics.exposition import Exposition
from sunk_metrics_exporter.slurm_metrics.table import BY_NAME
from sunk_metrics_exporter.testing.exporter import slurm

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
COUNTERS = {
    "slurm_controller_rpc_count",
    "slurm_scheduler_backfilled_jobs_total",
    "slurm_scheduler_backfilled_jobs_heterogeneous_total",
}
"""What is counted since Slurm's start and goes down only then."""
IN_SECONDS = {
    "slurm_controller_rpc_mean_duration_seconds": 0.001,
    "slurm_job_uptime_seconds": 90.0,
    "slurm_scheduler_backfill_cycle_last_seconds": 2.0,
    "slurm_scheduler_backfill_cycle_mean_seconds": 0.25,
    "slurm_scheduler_cycle_last_seconds": 3.0,
    "slurm_scheduler_cycle_mean_seconds": 0.5,
}
IN_MB = {
    "slurm_node_mem_alloc": 64_000.0,
    "slurm_node_mem_total": 512_000.0,
    "slurm_partition_mem_alloc": 64_000.0,
    "slurm_partition_mem_total": 512_000.0,
}


class Row(msgspec.Struct, frozen=True):
    metric: str
    unit: str
    labels: str


with Path(__file__).with_name("documented_metrics.csv").open(newline="") as file:
    ROWS = [msgspec.convert(row, Row) for row in csv.DictReader(file)]


def scrape() -> dict[str, Metric]:
    """Scrape a cluster in which every metric has something to tell."""
    node = SlurmNodeState(
        changed=NOW,
        node="n1",
        state="MIXED",
        memory_mib=512_000,
        memory_allocated_mib=64_000,
        partitions=("p",),
    )
    share = Allocation(nodes="n1", cpus=8, memory_mib=64_000, gpus=1)
    running = SlurmJobState(
        changed=NOW,
        job=1,
        state="RUNNING",
        nodes="n1",
        allocations=(share,),
        started=NOW - timedelta(seconds=90),
    )
    others = [
        SlurmJobState(changed=NOW, job=2 + at, state=s) for at, s in enumerate(("PENDING", "SUSPENDED"))
    ]
    statistics = SlurmStatisticsState(
        changed=NOW,
        backfill_cycle_last_s=2.0,
        backfill_cycle_mean_s=0.25,
        cycle_last_s=3.0,
        cycle_mean_s=0.5,
        rpcs=(RpcStatistic(message_type="REQUEST_PING", count=7, mean_duration_s=0.001),),
    )
    exposition = Exposition()
    partition = SlurmPartitionState(changed=NOW, partition="p", state="UP")
    exposition.update(slurm(node, running, *others, partition, statistics))
    # The parser gives each counter's samples a name that ends in _total.
    return {
        sample.name if sample.name in BY_NAME else sample.name.removesuffix("_total"): family
        for family in text_string_to_metric_families(exposition.text(NOW))
        for sample in family.samples
    }


SCRAPE = scrape()


def test_the_documents_have_seventy_metrics_and_a_scrape_has_these_and_no_other() -> None:
    assert len(ROWS) == 70
    assert SCRAPE.keys() == {row.metric for row in ROWS}
    assert [row.metric for row in ROWS if SCRAPE[row.metric].type == "counter"] == [
        row.metric for row in ROWS if row.metric in COUNTERS
    ]


@pytest.mark.parametrize("row", ROWS, ids=[row.metric for row in ROWS])
def test_a_documented_metric_has_its_labels_its_unit_and_a_type(row: Row) -> None:
    family = SCRAPE[row.metric]

    assert family.samples
    for sample in family.samples:
        assert list(sample.labels) == row.labels.split()
    assert family.type in {"gauge", "counter"}
    assert family.documentation
    assert BY_NAME[row.metric].unit == row.unit


def test_memory_is_told_in_mb_and_times_in_seconds() -> None:
    told = {name: family.samples[0].value for name, family in SCRAPE.items()}

    assert {row.metric for row in ROWS if row.unit == "MB"} == IN_MB.keys()
    assert {row.metric for row in ROWS if row.unit == "seconds"} == IN_SECONDS.keys()
    assert {name: told[name] for name in IN_MB | IN_SECONDS} == IN_MB | IN_SECONDS
