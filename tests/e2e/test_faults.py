"""Each service killed in the middle of its step: the step still holds after its restart."""

import pytest

from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("step", "service"),
    [
        ("cordon", "syncer"),
        ("cordon", "nodeset-controller"),
        ("drain", "nodeset-controller"),
        ("drain", "syncer"),
        ("lock", "hook-gateway"),
        ("lock", "nodeset-controller"),
        ("place", "pod-scheduler"),
        ("place", "hook-gateway"),
        ("metrics", "metrics-exporter"),
    ],
)
def test_the_step_holds_though_the_service_is_killed_midway(stage: Stage, step: str, service: str) -> None:
    def midway() -> None:
        stage.stack.services.kill(service)
        stage.stack.services.start(service)

    STEPS[step](stage, midway)

    stage.stack.services.await_ready(service)


@pytest.mark.parametrize("step", ["cordon", "lock", "place"])
def test_the_step_holds_though_the_bus_is_killed_midway(stage: Stage, step: str) -> None:
    STEPS[step](stage, stage.stack.restart_nats)
