"""What slurmctld refuses, with which number, and what it lets pass, on both real releases."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from sunk_lab.errors import LabError
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_24_11
from sunk_runtime.testing import until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

SLEEPER: dict[str, Any] = {
    "environment": ["PATH=/usr/bin:/bin"],
    "current_working_directory": "/",
    "standard_output": "/dev/null",
    "standard_error": "/dev/null",
}
SCRIPT = "#!/bin/bash\nsleep 60\n"
PRIORITY = {"priority": {"set": True, "infinite": False, "number": 77}}


@pytest.fixture
async def bare(cluster: HostSlurm) -> AsyncIterator[httpx.AsyncClient]:
    """slurmrestd without our client in between; leaves no job."""
    url = f"{cluster.url}/slurm/{cluster.release.api}/"
    headers = {"X-SLURM-USER-TOKEN": cluster.token()}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as bare:
        yield bare
        cluster.exec("scancel", "--user=root")


def numbers(answer: httpx.Response) -> list[int]:
    return [problem["error_number"] for problem in answer.json()["errors"]]


async def submit(bare: httpx.AsyncClient, **more: Any) -> httpx.Response:  # noqa: ANN401 - JSON
    return await bare.post("job/submit", json={"script": SCRIPT, "job": {**SLEEPER, "name": "x", **more}})


async def job(bare: httpx.AsyncClient, number: int) -> dict[str, Any]:  # Any: JSON.
    return (await bare.get(f"job/{number}")).json()["jobs"][0]


async def until_running(bare: httpx.AsyncClient, number: int) -> None:
    async def runs() -> bool:
        found = await job(bare, number)
        return (found["job_state"], found["state_reason"]) == (["RUNNING"], "None")

    await until(runs)


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        pytest.param({"required_nodes": ["nosuch"]}, 2018, id="an unknown node"),
        pytest.param({"excluded_nodes": ["nosuch"]}, 2018, id="an unknown node to keep off"),
        pytest.param({"required_nodes": ["node01"], "excluded_nodes": ["node01"]}, 2018, id="both"),
        pytest.param({"partition": "nosuch"}, 2000, id="an unknown partition"),
        pytest.param({"constraints": "nosuch"}, 2029, id="an unknown feature"),
        pytest.param({"tres_per_node": "gres/gpu:9"}, 2014, id="more GPUs than a node has"),
        pytest.param({"extra": "x" * 1025}, 2012, id="a long extra"),
    ],
)
async def test_a_job_that_can_never_be_is_refused(
    bare: httpx.AsyncClient, cluster: HostSlurm, asked: dict[str, Any], number: int
) -> None:
    answer = await submit(bare, **asked)

    assert (answer.status_code, numbers(answer)) == (status_of_refusal(cluster), [number])


def status_of_refusal(cluster: HostSlurm) -> int:
    return 500 if cluster.release == SLURM_24_11 else 422


async def test_a_job_of_more_nodes_than_there_are_is_refused_or_waits(
    bare: httpx.AsyncClient, cluster: HostSlurm
) -> None:
    answer = await submit(bare, minimum_nodes=9)

    if cluster.release == SLURM_24_11:
        assert numbers(answer) == [2014]
    else:
        assert (await job(bare, answer.json()["job_id"]))["job_state"] == ["PENDING"]


async def test_a_job_of_a_user_whom_nobody_knows_is_taken_and_held(bare: httpx.AsyncClient) -> None:
    number = (await submit(bare, user_id="64999")).json()["job_id"]

    async def is_held() -> bool:
        return (await job(bare, number))["state_reason"] == "JobHeldAdmin"

    await until(is_held)
    await bare.delete(f"job/{number}")


async def test_the_priority_of_a_held_job_cannot_be_set_and_that_of_a_running_one_can(
    bare: httpx.AsyncClient,
) -> None:
    number = (await submit(bare, hold=True)).json()["job_id"]
    held = await bare.post(f"job/{number}", json=PRIORITY)
    released = await bare.post(f"job/{number}", json={"hold": False})
    await until_running(bare, number)
    urgent = await bare.post(f"job/{number}", json=PRIORITY)
    priority = (await job(bare, number))["priority"]["number"]
    excluded = await bare.post(f"job/{number}", json={"excluded_nodes": ["node02"]})
    again = await bare.post(f"job/{number}", json={"hold": False})

    assert (numbers(held), numbers(released)) == ([2042], [])
    assert [numbers(answer) for answer in (urgent, excluded, again)] == [[], [2073], []]
    assert (priority, (await job(bare, number))["priority"]["number"]) == (77, 1)


async def test_a_job_that_is_over_is_not_changed_and_cancelling_it_or_nobody_is_no_error(
    bare: httpx.AsyncClient,
) -> None:
    number = (await submit(bare, hold=True)).json()["job_id"]
    signalled = await bare.delete(f"job/{number}", params={"signal": "USR1"})
    cancelled = [await bare.delete(f"job/{number}") for _ in range(2)]
    changed = [await bare.post(f"job/{number}", json=change) for change in ({"extra": "x"}, {"hold": False})]
    unknown = await bare.delete("job/987654")

    assert (numbers(signalled), [numbers(answer) for answer in cancelled]) == ([], [[], []])
    assert [numbers(answer) for answer in changed] == [[2084], [2084]]
    assert numbers(unknown) == []


@pytest.mark.parametrize("verb", ["requeue", "requeuehold"])
async def test_a_later_component_of_a_heterogeneous_job_is_not_requeued_without_the_others(
    bare: httpx.AsyncClient, cluster: HostSlurm, verb: str
) -> None:
    first, second = ("-n1", "--mem=10", "-wnode01"), ("-n1", "--mem=10", "-wnode02")
    whole = ("--parsable", "--requeue", "-D/", "-o/dev/null", *first, ":", *second, "--wrap=sleep 60")
    leader = int(cluster.exec("sbatch", *whole))
    for number in (leader, leader + 1):
        await until_running(bare, number)

    with pytest.raises(LabError, match="Job not heterogeneous job leader"):
        cluster.exec("scontrol", verb, str(leader + 1))
    component = (await job(bare, leader + 1))["job_state"]
    cluster.exec("scontrol", verb, str(leader))

    async def is_back(number: int) -> bool:
        return "PENDING" in (await job(bare, number))["job_state"]

    assert component == ["RUNNING"]
    for number in (leader, leader + 1):
        await until(lambda number=number: is_back(number))


async def test_a_node_that_is_well_cannot_be_resumed_and_can_be_undrained(
    bare: httpx.AsyncClient, cluster: HostSlurm
) -> None:
    resumed = await bare.post("node/node02", json={"state": ["RESUME"]})
    undrained = await bare.post("node/node02", json={"state": ["UNDRAIN"]})
    deleted = await bare.delete("node/node02")

    assert numbers(resumed) == [2028 if cluster.release == SLURM_24_11 else 2180]
    assert (numbers(undrained), numbers(deleted)) == ([], [2028])
