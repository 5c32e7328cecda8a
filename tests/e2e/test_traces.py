"""One trace follows a change from one side to the other, through every service that acts on it."""

import time
from collections.abc import Generator
from functools import partial

import pytest

from sunk_lab.collector import Collector
from sunk_lab.processes import wait_for
from sunk_lab.stack.services import PORTS
from sunk_lab.stack.stack import Stack
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS
from sunk_lab.story.traces import WAYS, find

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]


@pytest.fixture
def collector(stack: Stack) -> Generator[Collector]:
    """What takes the traces of all five services, which end and start for it, and again after it."""
    with Collector() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_TRACES_SAMPLER_ARG", "1")
        for service in PORTS:
            stack.services.stop(service)
        stack.services.start_all()
        yield collector
        for service in PORTS:
            stack.services.stop(service)


def test_a_cordon_a_pod_and_a_prolog_each_leave_one_trace_with_every_service_on_their_way(
    collector: Collector, stage: Stage
) -> None:
    for node in stage.nodes:
        stage.deeds.no_job_holds(node)  # With a job there it would drain for as long as that runs.
    for way in WAYS:
        # The syncer may tell of a job before its prolog asks for the lock, which is in the job's trace then.
        wait_for(f"the trace of {way}", partial(leaves_a_trace, collector, stage, way), 600)


def leaves_a_trace(collector: Collector, stage: Stage, way: str) -> bool:
    """Whether doing *way* leaves a whole trace within a minute."""
    began = time.time_ns()
    STEPS[way](stage)
    wait_for(f"the trace of {way}", partial(find, collector, way, began), 60)
    return True
