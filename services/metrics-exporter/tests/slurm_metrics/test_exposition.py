from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.nodes import RpcStatistic, SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.slurm_metrics.exposition import Exposition
from sunk_metrics_exporter.slurm_metrics.samples import JobChoice
from sunk_metrics_exporter.testing.exporter import SlurmState, scraped, slurm

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def running(number: int, nodes: str = "n-1") -> SlurmJobState:
    return SlurmJobState(
        changed=NOW,
        job=number,
        state="RUNNING",
        partition="p",
        user="ada",
        nodes=nodes,
        allocations=(Allocation(nodes=nodes, cpus=1),),
        started=NOW - timedelta(seconds=number),
    )


def pending(number: int) -> SlurmJobState:
    return SlurmJobState(changed=NOW, job=number, state="PENDING", partition="p", user="ada")


def any_state(random: Random) -> SlurmState:
    partition = random.choice(("p", "q", "r"))
    number = random.randint(1, 8)
    match random.randint(0, 3):
        case 0:
            return SlurmPartitionState(changed=NOW, partition=partition, state="UP")
        case 1:
            return SlurmNodeState(
                changed=NOW,
                node=f"n-{number}",
                state=random.choice(("IDLE", "MIXED", "DOWN", "NEWFANGLED")),
                is_drain=random.random() < 0.3,
                is_not_responding=random.random() < 0.3,
                cpus=random.randint(0, 64),
                partitions=tuple(random.sample(("p", "q", "r"), random.randint(0, 3))),
            )
        case 2:
            return pending(number)
        case _:
            return running(number, f"n-[1-{random.randint(1, 4)}]")


@pytest.mark.parametrize("seed", range(5))
def test_after_any_changes_a_scrape_is_what_it_would_be_made_anew(seed: int) -> None:
    random, states, exposition = Random(seed), dict[tuple[str, str], SlurmState](), Exposition()  # noqa: S311 - no secret
    for _ in range(60):
        state = any_state(random)
        match state:
            case SlurmNodeState():
                key = ("node", state.node)
            case SlurmJobState():
                key = ("job", str(state.job))
            case _:
                key = ("other", repr(state))
        if random.random() < 0.3:
            states.pop(key, None)
        else:
            states[key] = state
        exposition.update(slurm(*states.values()))

        anew = Exposition()
        anew.update(slurm(*states.values()))
        assert scraped(exposition, NOW) == scraped(anew, NOW)


def shown(exposition: Exposition) -> set[str]:
    return {labels[3] for labels in scraped(exposition, NOW).get("slurm_job_state", {})}


def test_jobs_beyond_the_cap_have_no_series_and_are_counted_all_the_same() -> None:
    exposition = Exposition(JobChoice(), most=9)

    exposition.update(slurm(running(1), running(2), running(3), pending(4)))

    assert shown(exposition) == {"1", "2", "4"}
    assert (exposition.jobs.size, exposition.jobs.left_out) == (9, 1)
    assert scraped(exposition, NOW)["slurm_queue_running"] == {(): 3}


def test_a_job_that_never_fits_keeps_no_other_out() -> None:
    exposition = Exposition(JobChoice(), most=9)

    exposition.update(slurm(running(1, "n-[1-3]"), running(2), pending(3)))
    exposition.update(slurm(running(1, "n-[1-3]"), running(2), pending(3), pending(4)))

    assert shown(exposition) == {"2", "3", "4"}
    assert (exposition.jobs.size, exposition.jobs.left_out) == (6, 1)


def test_a_job_that_does_not_fit_now_keeps_no_smaller_one_out() -> None:
    exposition = Exposition(JobChoice(), most=7)

    exposition.update(slurm(running(1), running(2), pending(3)))

    assert shown(exposition) == {"1", "3"}
    assert exposition.jobs.left_out == 1


def test_room_that_a_job_leaves_goes_to_the_one_that_waited_longest() -> None:
    exposition = Exposition(JobChoice(), most=8)
    exposition.update(slurm(running(1), running(2), running(3), running(4)))

    exposition.update(slurm(running(2), running(3), running(4)))

    assert shown(exposition) == {"2", "3"}
    assert exposition.jobs.left_out == 1


def test_a_job_that_changes_keeps_its_place_while_it_fits() -> None:
    exposition = Exposition(JobChoice(), most=6)
    exposition.update(slurm(pending(1), running(2), running(3)))
    assert shown(exposition) == {"1", "2"}

    exposition.update(slurm(pending(1), running(2, "n-2"), running(3)))
    assert shown(exposition) == {"1", "2"}

    exposition.update(slurm(running(1), running(2, "n-2"), running(3)))
    assert shown(exposition) == {"2"}
    assert exposition.jobs.left_out == 2

    exposition.update(slurm())
    assert (exposition.jobs.size, exposition.jobs.left_out) == (0, 0)


def test_a_job_that_runs_on_shows_a_time_that_goes_on() -> None:
    exposition = Exposition()
    exposition.update(slurm(running(90)))

    whose = ("p", "", "ada", "90", "n-1")
    assert scraped(exposition, NOW)["slurm_job_uptime_seconds"] == {whose: 90}
    assert scraped(exposition, NOW + timedelta(seconds=5))["slurm_job_uptime_seconds"] == {whose: 95}
    assert scraped(exposition, NOW - timedelta(hours=1))["slurm_job_uptime_seconds"] == {whose: 0}


def told(submitted: int, *rpcs: tuple[str, int]) -> SlurmStatisticsState:
    counts = tuple(RpcStatistic(message_type=kind, count=count) for kind, count in rpcs)
    return SlurmStatisticsState(changed=NOW, jobs_submitted=submitted, backfilled_jobs=submitted, rpcs=counts)


def test_counters_begin_anew_with_slurmctld_and_nothing_is_left_of_what_it_no_longer_counts() -> None:
    exposition = Exposition()
    exposition.update(slurm(told(90, ("REQUEST_PING", 70), ("REQUEST_SUBMIT_BATCH_JOB", 9))))
    exposition.update(slurm(told(2, ("REQUEST_PING", 1))))

    samples = scraped(exposition, NOW)

    assert samples["slurm_controller_rpc_count_total"] == {("REQUEST_PING",): 1}  # As the parser calls it.
    assert samples["slurm_scheduler_jobs_submitted"] == {(): 2}
    assert samples["slurm_scheduler_backfilled_jobs_total"] == {(): 2}
