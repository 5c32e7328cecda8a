import math
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.slurm_metrics.ages import KINDS, LastSeen, ages, last_seen, rests_on
from sunk_metrics_exporter.slurm_metrics.exposition import Exposition
from sunk_metrics_exporter.slurm_metrics.table import TABLE, Series
from sunk_metrics_exporter.testing.exporter import SlurmState, scraped, slurm

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def node(changed: datetime) -> SlurmNodeState:
    return SlurmNodeState(changed=changed, node="n1", state="IDLE")


def told(changed: datetime, **answered: datetime) -> SlurmStatisticsState:
    return SlurmStatisticsState(
        changed=changed,
        nodes_answered=answered.get("nodes"),
        jobs_answered=answered.get("jobs"),
        partitions_answered=answered.get("partitions"),
    )


class Looks:
    """Looks at the bus, one after the other."""

    def __init__(self) -> None:
        self._exposition, self._last_seen = Exposition(), LastSeen()

    def aged(self, now: datetime, *states: SlurmState) -> dict[str, float]:
        self._exposition.update(slurm(*states))
        statistics = next((one for one in states if isinstance(one, SlurmStatisticsState)), None)
        self._last_seen = last_seen(self._last_seen, self._exposition.newest(), statistics, now)
        return {str(kind): age for kind, age in ages(self._last_seen, now).items()}


def aged(*states: SlurmState) -> dict[str, float]:
    return Looks().aged(NOW, *states)


def test_each_kind_is_as_old_as_slurms_last_answer_about_all_of_it() -> None:
    statistics = told(ago(3), nodes=ago(50), jobs=ago(500), partitions=ago(4))

    assert aged(statistics, node(ago(9999))) == {"nodes": 50, "jobs": 500, "partitions": 4, "statistics": 3}


def test_a_state_that_is_newer_than_the_last_whole_answer_tells_that_slurm_was_heard() -> None:
    assert aged(told(ago(30), nodes=ago(60)), node(ago(2)))["nodes"] == 2


def test_where_the_syncer_does_not_tell_yet_the_newest_state_of_any_kind_must_do() -> None:
    partition = SlurmPartitionState(changed=ago(70), partition="p", state="UP")

    assert aged(node(ago(20)), partition) == dict.fromkeys(KINDS, 20) | {"statistics": math.inf}
    assert aged(told(ago(5)), node(ago(20))) == dict.fromkeys(KINDS, 5)
    assert aged() == dict.fromkeys(KINDS, math.inf)


def test_a_clock_that_is_ahead_makes_nothing_younger_than_now() -> None:
    assert aged(told(ago(-60), nodes=ago(-60)))["nodes"] == 0


def test_what_a_clock_that_was_ahead_wrote_is_as_old_as_our_first_look_at_it() -> None:
    ahead = ago(-600)
    statistics, looks = told(ahead, nodes=ahead, jobs=ahead, partitions=ahead), Looks()
    assert looks.aged(NOW, statistics, node(ahead)) == dict.fromkeys(KINDS, 0)

    read_again = (replace(statistics), replace(node(ahead), reason="words"))
    assert looks.aged(ago(-200), *read_again) == dict.fromkeys(KINDS, 200)
    assert looks.aged(ago(-300), replace(statistics, changed=ago(-900)), node(ahead)) == {
        **dict.fromkeys(KINDS, 300),
        "statistics": 0,
    }


def test_a_right_clock_after_one_that_was_ahead_counts_at_once() -> None:
    looks = Looks()
    looks.aged(NOW, told(ago(-600), nodes=ago(-600)), node(ago(-600)))
    after = looks.aged(ago(-100), told(ago(-90), nodes=ago(-80)), node(ago(-70)))

    assert (after["nodes"], after["statistics"]) == (20, 10)


def test_nothing_is_fresh_for_as_long_as_our_own_clock_was_set_back() -> None:
    states, looks = (told(NOW, nodes=NOW), node(NOW)), Looks()
    looks.aged(NOW, *states)
    looks.aged(ago(3600), *states)

    assert looks.aged(ago(3300), *states)["nodes"] == 300


def test_a_node_that_went_was_heard_of_all_the_same() -> None:
    looks = Looks()
    looks.aged(ago(5), node(ago(5)))

    assert looks.aged(NOW)["nodes"] == 5


@pytest.mark.parametrize("series", TABLE, ids=[series.name for series in TABLE])
def test_every_metric_of_the_table_rests_on_some_kind(series: Series) -> None:
    assert rests_on(series.name) <= set(KINDS)


def test_what_rests_on_an_old_kind_is_left_out_and_the_rest_stays() -> None:
    exposition = Exposition()
    exposition.update(slurm(node(NOW), SlurmPartitionState(changed=NOW, partition="p", state="UP")))

    fresh = scraped(exposition, NOW).keys()
    text = exposition.text(NOW, fresh={"nodes"})
    without_jobs = {line.split("{")[0].split()[0] for line in text.splitlines()}

    assert {"slurm_nodes_total", "slurm_queue_pending", "slurm_partition_cpu_total"} <= fresh
    assert "slurm_nodes_total" in without_jobs
    assert not {"slurm_queue_pending", "slurm_partition_cpu_total", "slurm_scheduler_queue"} & without_jobs
