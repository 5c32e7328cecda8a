"""The story, step by step: what people do on one side, what the other side shows."""

import pytest

from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", STEPS)
def test_the_step_holds(stage: Stage, name: str) -> None:
    timings = STEPS[name](stage)

    assert all(timing.seconds >= 0 for timing in timings)
