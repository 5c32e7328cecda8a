"""`bench story`, small: every reaction of the README's table is measured, on the stack that is up."""

from collections.abc import Callable
from typing import Any

import pytest

from sunk_lab.story.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_each_reaction_is_measured(stage: Stage, run_bench: Callable[..., list[dict[str, Any]]]) -> None:
    number = {"SUNK_LAB_NUMBER": str(stage.stack.number)}

    found = run_bench("story", "--rounds 2", number)

    assert {line["name"] for line in found} == {
        "story.cordon_to_drain",
        "story.drain_to_condition",
        "story.lock_idle",
        "story.pod_bound",
    }
