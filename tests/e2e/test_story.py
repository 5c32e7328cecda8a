# pyright: reportUnknownMemberType=false
"""The story, step by step: what people do on one side, what the other side shows."""

import re
import time
from collections import Counter
from typing import Any

import anyio
import msgspec
import nats
import pytest

from sunk_events import subjects
from sunk_lab.stack.users import PEOPLE
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.observe import until
from sunk_lab.story.scrape import Series
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

CAUSES = {
    "cordon": {
        "sunk.syncer.v1.node_drained": r"SUNK_lab_kube_pod:{subject}:\d+",
        "sunk.syncer.v1.node_undrained": r"SUNK_lab_kube_pod:{subject}:\d+",
    },
    "lock": {
        "sunk.nodeset_controller.v1.lock_locked": r"acquire_lock:{subject}:\d+|SUNK_lab_slurm_job:\d+:\d+",
        "sunk.nodeset_controller.v1.lock_unlocked": r"SUNK_lab_lock:{subject}:\d+",
        "sunk.hook_gateway.v1.prehook_called": r"acquire_lock:{subject}:\d+",
    },
    "place": {
        "sunk.pod_scheduler.v1.placement_submitted": r"Pod:{subject}:\d+",
        "sunk.pod_scheduler.v1.placement_started": r"placement_announced:\d+|SUNK_lab_slurm_job:\d+:\d+",
        "sunk.pod_scheduler.v1.placement_bound": r"SUNK_lab_placement:{subject}:\d+",
    },
}
"""What the facts of a step name as what led to them, by type."""


@pytest.mark.parametrize("name", STEPS)
def test_the_step_holds(stage: Stage, name: str) -> None:
    url, wanted = stage.stack.nats_url_of(PEOPLE), CAUSES.get(name, {})
    before = anyio.run(last_fact, url)

    timings = STEPS[name](stage)

    assert all(timing.seconds >= 0 for timing in timings)
    told: list[Any] = []

    def are_told() -> bool:
        told[:] = anyio.run(facts_after, url, before)
        return wanted.keys() <= {fact["type"] for fact in told if "cause" in fact}

    until("the facts", are_told, lambda: [fact["type"] for fact in told])
    for fact in told:
        if "cause" in fact and (pattern := wanted.get(fact["type"])):
            assert re.fullmatch(pattern.format(subject=re.escape(fact["subject"])), fact["cause"])


def test_a_pod_takes_three_writes_to_slurm_and_two_to_kubernetes(stage: Stage) -> None:
    """What `bench/README.md` says of them; Events come later, and a look is taken twice at most."""
    do, name = stage.deeds, fresh("counted")
    before = calls(stage)

    do.kube.create(manifests.placed_pod(name))
    do.pod_runs(name)
    time.sleep(1)  # What is said of it afterwards counts too.

    took = calls(stage) - before
    took.pop("versions", None)  # Asked for once by each process.
    looks, said = took.pop("job", 0), took.pop("POST events", 0) + took.pop("PATCH events", 0)
    assert dict(took) == {"job_submit": 1, "job_update": 2, "PATCH pods": 1, "BIND pods": 1}
    assert looks <= 2
    assert said <= 2
    job = do.placeholder_of(name)
    do.kube.delete("Pod", name)
    do.pod_gone(name)
    do.job_left(job)


def calls(stage: Stage) -> Counter[str]:
    """Return how often the pod-scheduler has called slurmrestd and the API server, but for its lease."""
    text = stage.stack.metrics_of("pod-scheduler")
    found: Counter[str] = Counter()
    for sample in Series(text).samples:
        labels = sample.labels
        if sample.name == "sunk_slurm_call_duration_seconds_count":
            found[labels["call"]] += int(sample.value)
        elif sample.name == "sunk_kube_requests_total" and labels["resource"] != "leases":
            found[f"{labels['verb']} {labels['resource']}"] += int(sample.value)
    return found


async def last_fact(url: str) -> int:
    client = await nats.connect(url)
    try:
        return (await client.jetstream().stream_info(subjects.fact_stream("lab"))).state.last_seq
    finally:
        await client.close()


async def facts_after(url: str, before: int) -> list[dict[str, Any]]:
    """Return the facts that were told after the first *before*."""
    client = await nats.connect(url)
    try:
        stream = subjects.fact_stream("lab")
        js, last = client.jetstream(), (await client.jetstream().stream_info(stream)).state.last_seq
        found = [(await js.get_msg(stream, seq=seq)).data or b"" for seq in range(before + 1, last + 1)]
    finally:
        await client.close()
    return [msgspec.json.decode(data) for data in found]
