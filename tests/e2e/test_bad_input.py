# pyright: reportUnknownMemberType=false
"""What a user or a stranger may get wrong: a clear answer, nothing lost, and no service ends for it."""

from collections.abc import Generator

import anyio
import httpx
import nats
import pytest

from sunk_lab.stack.services import PORTS
from sunk_lab.stack.stack import KILL_WAIT_S
from sunk_lab.stack.users import PEOPLE
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.observe import until
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import cordon

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def nobody_crashes(stage: Stage) -> Generator[None]:
    before = {service: stage.stack.services.pid(service) for service in PORTS}

    yield

    assert {service: stage.stack.services.pid(service) for service in PORTS} == before


def complaints(stage: Stage, pod: str) -> list[str]:
    found = stage.deeds.kube.list("Event", manifests.NAMESPACE, fieldSelector=f"involvedObject.name={pod}")
    return [event["message"] for event in found if event["reason"] == "ValidationFailed"]


@pytest.mark.parametrize(
    ("grace_s", "cpu", "said"),
    [
        pytest.param(2, "", "cpu", id="no requests"),
        pytest.param(
            KILL_WAIT_S - 5, "1", "termination grace period must be less than Slurm KillWait - 5s", id="grace"
        ),
    ],
)
def test_a_pod_that_cannot_be_passed_to_slurm_is_told_why_and_has_no_job(
    stage: Stage, grace_s: int, cpu: str, said: str
) -> None:
    pod, jobs = fresh("bad"), {job["job_id"] for job in stage.deeds.slurm.jobs()}
    stage.deeds.kube.create(manifests.placed_pod(pod, grace_s=40 if grace_s > 2 else grace_s, cpu=cpu))
    try:
        until(
            f"an Event that says {said!r}",
            lambda: any(said.lower() in text.lower() for text in complaints(stage, pod)),
            lambda: complaints(stage, pod),
        )

        assert {job["job_id"] for job in stage.deeds.slurm.jobs()} == jobs
        assert stage.deeds.node_of(pod) == ""
    finally:
        stage.deeds.kube.delete("Pod", pod, manifests.NAMESPACE)
        stage.deeds.pod_gone(pod)


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        pytest.param("/v1/nodes/{node}/prehook", {}, {"job": 1}, 401, id="no token"),
        pytest.param(
            "/v1/nodes/{node}/prehook", {"Authorization": "Bearer x.y.z"}, {"job": 1}, 401, id="no such token"
        ),
        pytest.param(
            "/v1/jobs/1/started", {"Authorization": "Bearer x"}, {"node": "n"}, 404, id="no such job"
        ),
        pytest.param("/v1/nothing", {}, {}, 404, id="no such call"),
    ],
)
def test_a_stranger_gets_nothing_from_the_gateway(
    stage: Stage, path: str, headers: dict[str, str], body: dict[str, object], status: int
) -> None:
    node = stage.nodes[0]
    url = stage.stack.hooks_url + path.format(node=node.node)
    answer = httpx.post(url, headers=headers, json=body, timeout=120, trust_env=False)

    assert answer.status_code == status
    assert stage.deeds.eyes.lock(node)[0] in {"false", ""}


def test_rubbish_on_the_bus_stops_nobody(stage: Stage) -> None:
    async def litter() -> None:
        client = await nats.connect(stage.stack.nats_url_of(PEOPLE))
        stream = client.jetstream()
        for subject in (
            "sunk.ev.lab.slurm.node.x.drained",  # A fact that is none.
            "sunk.ev.lab.nobody.knows.this.subject",
            "$KV.SUNK_lab_kube_pod.rubbish",
            "$KV.SUNK_lab_lock.rubbish",
        ):
            await stream.publish(subject, b'{"type":"sunk.nobody.v9.nothing"')
        await client.close()

    anyio.run(litter)

    cordon(stage)
