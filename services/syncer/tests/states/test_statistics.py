"""What is taken over of an earlier leader's statistics."""

from datetime import timedelta

import pytest

from sunk_events.nodes import SlurmStatisticsState
from sunk_slurm.testing import T0
from sunk_syncer.states.statistics import of_earlier_leader

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("ahead", "back"),
    [
        pytest.param(HOUR, HOUR, id="its clock was an hour ahead"),
        pytest.param(timedelta(), timedelta(), id="both clocks are right"),
        pytest.param(-HOUR, timedelta(), id="its clock was behind: older than it is harms nothing"),
    ],
)
def test_an_earlier_leaders_lists_are_as_old_as_when_they_were_stored(
    ahead: timedelta, back: timedelta
) -> None:
    told = SlurmStatisticsState(
        changed=T0 + ahead, nodes_answered=T0 + ahead - MINUTE, jobs_answered=T0 + ahead - 2 * MINUTE
    )

    assert of_earlier_leader(told, T0) == SlurmStatisticsState(
        changed=T0 + ahead - back,
        nodes_answered=T0 + ahead - back - MINUTE,
        jobs_answered=T0 + ahead - back - 2 * MINUTE,
    )


def test_a_list_that_is_newer_than_the_statistics_is_no_younger_than_what_was_stored() -> None:
    told = SlurmStatisticsState(changed=T0 - MINUTE, nodes_answered=T0 + HOUR)

    assert of_earlier_leader(told, T0).nodes_answered == T0
