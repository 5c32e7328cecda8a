# pyright: reportUnknownMemberType=false
"""The story, step by step: what people do on one side, what the other side shows."""

import re
from typing import Any

import anyio
import msgspec
import nats
import pytest

from sunk_events import subjects
from sunk_lab.stack.users import PEOPLE
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
    told = anyio.run(facts_after, url, before)
    named = {fact["type"] for fact in told if "cause" in fact}
    assert wanted.keys() <= named
    for fact in told:
        if "cause" in fact and (pattern := wanted.get(fact["type"])):
            assert re.fullmatch(pattern.format(subject=re.escape(fact["subject"])), fact["cause"])


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
