from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState
from sunk_metrics_exporter.slurm_metrics.exposition import Exposition
from sunk_metrics_exporter.slurm_metrics.samples import JobChoice, JobLabel, JobSeries
from sunk_metrics_exporter.slurm_metrics.states import job_word, node_word
from sunk_metrics_exporter.testing.exporter import Samples, SlurmState, scraped, slurm

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def node(name: str = "gpu-1", state: str = "IDLE", *flags: str, held: int = 0) -> SlurmNodeState:
    return SlurmNodeState(
        changed=NOW,
        node=name,
        state=state,
        flags=flags,
        is_drain="DRAIN" in flags,
        is_busy=state in {"ALLOCATED", "MIXED"} or "COMPLETING" in flags,
        is_down=state == "DOWN",
        is_not_responding="NOT_RESPONDING" in flags,
        cpus=64,
        cpus_allocated=held * 8,
        memory_mib=512_000,
        memory_allocated_mib=held * 64_000,
        gpus=8,
        gpus_allocated=held,
        partitions=("gpu",),
    )


def job(
    number: int,
    state: str,
    *flags: str,
    user: str = "ada",
    tasks: int = 1,
    nodes: str = "",
    share: Allocation | None = None,
    is_dependency_pending: bool = False,
) -> SlurmJobState:
    return SlurmJobState(
        changed=NOW,
        job=number,
        state=state,
        flags=flags,
        is_over=state not in {"PENDING", "RUNNING", "SUSPENDED"},
        name="train",
        user=user,
        account="lab",
        partition="gpu",
        array_tasks=tasks,
        nodes=nodes,
        allocations=(share,) if share else (),
        started=NOW - timedelta(seconds=90) if nodes else None,
        is_dependency_pending=is_dependency_pending,
    )


def collect(*states: SlurmState, choice: JobChoice | None = None) -> Samples:
    exposition = Exposition(choice)
    exposition.update(slurm(*states))
    return scraped(exposition, NOW)


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        pytest.param(node(), "idle", id="idle"),
        pytest.param(node("n", "MIXED"), "mixed", id="mixed"),
        pytest.param(node("n", "ALLOCATED", "COMPLETING"), "allocated", id="allocated and completing"),
        pytest.param(node("n", "IDLE", "COMPLETING"), "completing", id="only epilogs left"),
        pytest.param(node("n", "IDLE", "DRAIN"), "drained", id="drained"),
        pytest.param(node("n", "MIXED", "DRAIN"), "draining", id="draining"),
        pytest.param(node("n", "DOWN", "DRAIN", "NOT_RESPONDING"), "drained", id="down, its drain kept"),
        pytest.param(node("n", "DOWN", "NOT_RESPONDING"), "down", id="down"),
        pytest.param(node("n", "ALLOCATED", "FAIL"), "failing", id="failing"),
        pytest.param(node("n", "IDLE", "MAINTENANCE", "RESERVED"), "maint", id="in maintenance"),
        pytest.param(node("n", "IDLE", "RESERVED"), "reserved", id="reserved"),
        pytest.param(node(held=1), "mixed", id="held by a suspended job"),
        pytest.param(node("n", "IDLE", "DRAIN", held=1), "draining", id="draining, a suspended job on it"),
        pytest.param(node("n", "NEWFANGLED"), "newfangled", id="a newer Slurm's word"),
    ],
)
def test_a_node_is_called_what_sinfo_calls_it(seen: SlurmNodeState, word: str) -> None:
    assert node_word(seen) == word


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        pytest.param(job(1, "RUNNING"), "running", id="running"),
        pytest.param(job(1, "RUNNING", "CONFIGURING"), "configuring", id="configuring"),
        pytest.param(job(1, "CANCELLED", "COMPLETING"), "completing", id="cancelled, still on its nodes"),
        pytest.param(job(1, "NODE_FAIL"), "node_fail", id="its node failed"),
    ],
)
def test_a_job_is_called_what_squeue_calls_it(seen: SlurmJobState, word: str) -> None:
    assert job_word(seen) == word


def test_each_node_is_counted_once_and_silent_ones_beside_that() -> None:
    nodes = [
        node("a"),
        node("b", "IDLE", "DRAIN"),
        node("c", "MIXED", "DRAIN"),
        node("d", "DOWN", "NOT_RESPONDING"),
        node("e", "MIXED"),
    ]

    samples = collect(*nodes)

    counts = {name: found[()] for name, found in samples.items() if name.startswith("slurm_nodes_")}
    silent, total = counts.pop("slurm_nodes_not_responding"), counts.pop("slurm_nodes_total")
    assert {name: count for name, count in counts.items() if count} == {
        "slurm_nodes_idle": 1,
        "slurm_nodes_drain": 2,
        "slurm_nodes_down": 1,
        "slurm_nodes_mix": 1,
    }
    assert sum(counts.values()) == total == 5
    assert silent == 1


def test_a_partition_is_the_sum_of_its_nodes_and_an_empty_one_is_shown_too() -> None:
    empty = SlurmPartitionState(changed=NOW, partition="spare", state="UP")

    samples = collect(node("a", held=2), node("b"), empty)

    assert samples["slurm_partition_gpu_alloc"] == {("gpu",): 2, ("spare",): 0}
    assert samples["slurm_partition_gpu_idle"] == {("gpu",): 14, ("spare",): 0}
    assert samples["slurm_partition_mem_total"] == {("gpu",): 1_024_000, ("spare",): 0}
    assert samples["slurm_node_cpu_idle"] == {("a",): 48, ("b",): 64}


def test_tasks_of_a_pending_array_are_counted_each() -> None:
    jobs = (
        job(1, "PENDING", tasks=100),
        job(2, "PENDING", user="bob", is_dependency_pending=True),
        job(3, "RUNNING"),
        job(4, "COMPLETED", "COMPLETING"),
    )

    samples = collect(*jobs)

    assert samples["slurm_jobs_pending"] == {("gpu", "lab", "ada"): 100, ("gpu", "lab", "bob"): 1}
    assert samples["slurm_queue_pending"] == {(): 101}
    assert samples["slurm_queue_pending_dependency"] == {(): 1}
    assert samples["slurm_queue_running"] == {(): 1}
    assert samples["slurm_queue_completing"] == {(): 1}
    assert samples["slurm_queue_completed"] == {(): 0}


def test_a_running_job_shows_what_it_holds_on_each_node() -> None:
    running = job(
        7, "RUNNING", nodes="gpu-[1-2]", share=Allocation(nodes="gpu-[1-2]", cpus=16, memory_mib=9, gpus=2)
    )

    samples = collect(running, job(8, "SUSPENDED", nodes="gpu-3"))

    whose = ("gpu", "lab", "ada", "7")
    assert samples["slurm_job_gpus_allocated"] == {(*whose, "gpu-1"): 2, (*whose, "gpu-2"): 2}
    assert samples["slurm_job_cpus_allocated"] == {(*whose, "gpu-1"): 16, (*whose, "gpu-2"): 16}
    assert samples["slurm_job_uptime_seconds"] == {(*whose, "gpu-1"): 90.0, (*whose, "gpu-2"): 90.0}


def test_a_hostlist_that_cannot_be_read_costs_only_its_own_samples() -> None:
    samples = collect(job(7, "RUNNING", nodes="gpu-[1-"), job(8, "RUNNING", nodes="gpu-1"))

    assert [labels[3] for labels in samples["slurm_job_uptime_seconds"]] == ["8"]
    assert len(samples["slurm_job_state"]) == 2


@pytest.mark.parametrize(
    ("which", "shown"),
    [("all", {"1", "2", "3"}), ("running", {"1"}), ("off", set[str]())],
)
def test_the_series_of_single_jobs_are_a_setting_the_counts_are_not(
    which: JobSeries, shown: set[str]
) -> None:
    jobs = (job(1, "RUNNING"), job(2, "COMPLETED"), job(3, "PENDING"))

    samples = collect(*jobs, choice=JobChoice(which=which))

    assert {labels[3] for labels in samples.get("slurm_job_state", {})} == shown
    assert samples["slurm_queue_completed"] == {(): 1}
    assert samples["slurm_jobs_pending"] == {("gpu", "lab", "ada"): 1}


def test_labels_of_single_jobs_are_a_setting_and_what_tells_them_apart_stays() -> None:
    share = Allocation(nodes="gpu-[1-2]", cpus=16)
    few: frozenset[JobLabel] = frozenset(("user",))

    samples = collect(job(7, "RUNNING", nodes="gpu-[1-2]", share=share), choice=JobChoice(labels=few))

    assert samples["slurm_job_state"] == {("ada", "7", "running"): 1}
    assert samples["slurm_job_cpus_allocated"] == {("ada", "7", "gpu-1"): 16, ("ada", "7", "gpu-2"): 16}
    assert samples["slurm_job_uptime_seconds"] == {("ada", "7", "gpu-1"): 90, ("ada", "7", "gpu-2"): 90}
    assert samples["slurm_jobs_running"] == {("gpu", "lab", "ada"): 1}


def test_a_node_in_two_partitions_counts_in_both_and_once_in_the_cluster() -> None:
    both = replace(node("a", "MIXED", held=2), partitions=("gpu", "all", "gpu"))

    samples = collect(both, node("b"))

    assert samples["slurm_node_state"] == dict.fromkeys(
        [("a", "gpu", "mixed"), ("a", "all", "mixed"), ("b", "gpu", "idle")], 1
    )
    assert samples["slurm_partition_gpu_total"] == {("gpu",): 16, ("all",): 8}
    assert samples["slurm_nodes_total"] == {(): 2}


def test_an_empty_cluster_shows_its_zeros() -> None:
    samples = collect()

    assert samples["slurm_nodes_total"] == {(): 0}
    assert samples["slurm_queue_pending"] == {(): 0}
    assert {name for name in samples if name.startswith(("slurm_job", "slurm_node_", "slurm_part"))} == set()


@pytest.mark.parametrize(
    "name",
    ['a "b"', "two\nlines", "back\\slash\\n", "x" * 1000, "a,b={c}", "\u00e4\u2603", "\r\t", "", " # {"],
)
def test_prometheus_reads_any_name_as_it_is(name: str) -> None:
    samples = collect(replace(job(1, "PENDING", user=name), name=name, account=name))

    assert samples["slurm_job_state"] == {("gpu", name, name, "1", name, "pending"): 1}
    assert samples["slurm_jobs_pending"] == {("gpu", name, name): 1}
