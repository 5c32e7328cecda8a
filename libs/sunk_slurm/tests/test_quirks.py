"""What slurmrestd does that nobody would expect, and what the client makes of it: both real releases.

Source: slurmrestd 24.11.5 and 26.05.5, measured. When a test fails on a newer Slurm, a workaround may go.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from msgspec.structs import replace

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_24_11
from sunk_runtime.testing import until
from sunk_slurm.circuit import FAILURES
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import INVALID_NODE_NAME, SlurmRejectedError, SlurmUnavailableError
from sunk_slurm.reads import NodeList, NotModified
from sunk_slurm.submission import JobDescription
from sunk_slurm.tokens import KeyTokens

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

SLEEPER = JobDescription(
    script="#!/bin/bash\nsleep 300\n",
    environment=("PATH=/usr/bin:/bin",),
    current_working_directory="/",
    standard_output="/dev/null",
    standard_error="/dev/null",
    required_nodes=("node01",),
)


@pytest.fixture
async def client(cluster: HostSlurm) -> AsyncIterator[SlurmClient]:
    async with SlurmClient(cluster.url, KeyTokens(cluster.jwt_key)) as client:
        yield client


@pytest.fixture
async def bare(cluster: HostSlurm) -> AsyncIterator[httpx.AsyncClient]:
    """slurmrestd without our client in between."""
    url = f"{cluster.url}/slurm/{cluster.release.api}/"
    headers = {"X-SLURM-USER-TOKEN": cluster.token()}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as bare:
        yield bare


def numbers(answer: httpx.Response) -> set[int]:
    return {problem["error_number"] for problem in answer.json()["errors"]}


async def test_an_unknown_node_is_answered_with_success_and_no_list(
    bare: httpx.AsyncClient, client: SlurmClient
) -> None:
    answer = await bare.get("node/nosuch")

    assert (answer.status_code, answer.json().get("nodes"), numbers(answer)) == (200, None, {0})
    assert await client.node("nosuch") is None


async def test_an_unknown_state_is_refused_and_the_rest_is_done_all_the_same(
    bare: httpx.AsyncClient, client: SlurmClient
) -> None:
    answer = await bare.post(
        "node/node02", json={"state": ["DRAIN", "BOGUS"], "reason": "half", "extra": "x"}
    )
    node = await client.node("node02")
    await client.undrain("node02")
    await client.set_extra("node02", "")

    assert answer.status_code >= 400
    assert node is not None
    assert (node.state_now.is_drain, node.reason, node.extra) == (True, "half", "x")


async def test_nodes_answer_304_where_nothing_changed(bare: httpx.AsyncClient, client: SlurmClient) -> None:
    first = await client.nodes()
    assert isinstance(first, NodeList)

    async def is_quiet() -> bool:  # A ping of slurmd counts as a change.
        later = {"update_time": first.last_update + 60}
        return (await bare.get("nodes/", params=later)).status_code == 304

    await until(is_quiet)


async def test_jobs_answer_200_with_none_where_nothing_changed(bare: httpx.AsyncClient) -> None:
    later = {"update_time": int(time.time()) + 60}
    answer = await bare.get("jobs/", params=later)

    assert (answer.status_code, answer.json()["jobs"]) == (200, [])
    assert any("update_time" in warning["description"] for warning in answer.json()["warnings"])


async def test_24_11_answers_500_when_nodes_changed_and_partitions_did_not(
    bare: httpx.AsyncClient, client: SlurmClient, cluster: HostSlurm
) -> None:
    first = await client.nodes()
    assert isinstance(first, NodeList)
    await anyio.sleep(2.1)  # Partitions "changed" when the cluster started; the question is to the second.
    asked = int(time.time()) - 1
    await client.drain("node02", "k8s: test")
    answer = await bare.get("nodes/", params={"update_time": asked})
    seen = await client.nodes(asked)
    await client.undrain("node02")

    is_mended = cluster.release is not SLURM_24_11
    assert (answer.status_code, numbers(answer)) == ((200, set[int]()) if is_mended else (500, {-1}))
    assert isinstance(seen, NodeList)
    assert [node.name for node in seen.nodes if node.state_now.is_drain] == ["node02"]


async def test_an_expired_token_is_answered_with_511_and_none_with_401(cluster: HostSlurm) -> None:
    url = f"{cluster.url}/slurm/{cluster.release.api}/diag/"
    expired = cluster.token(lifespan_s=-3600)
    async with httpx.AsyncClient(timeout=60) as bare:
        none = await bare.get(url)
        old = await bare.get(url, headers={"X-SLURM-USER-TOKEN": expired})
        bearer = await bare.get(url, headers={"Authorization": f"Bearer {cluster.token()}"})

    assert (none.status_code, old.status_code, numbers(old)) == (401, 511, {1007})
    assert bearer.status_code == 200


async def test_flags_are_repeated_and_not_joined(bare: httpx.AsyncClient) -> None:
    repeated = await bare.get("nodes/", params=[("flags", "ALL"), ("flags", "DETAIL")])
    joined = await bare.get("nodes/", params={"flags": "ALL,DETAIL"})

    assert repeated.status_code == 200
    assert joined.status_code >= 400


async def test_deleting_a_hostlist_deletes_what_it_can_and_fails(
    client: SlurmClient, cluster: HostSlurm
) -> None:
    for name in ("f3", "f9"):
        cluster.exec("scontrol", "create", f"nodename={name}", "state=CLOUD")
    with pytest.raises(SlurmRejectedError) as refused:
        await client.delete_node("f3,node01,f9")
    await client.delete_node("f3,f4")  # Unknown ones are gone, which is success.

    assert refused.value.number != INVALID_NODE_NAME
    assert await client.node("f3") is None
    await client.delete_node("f9")


async def test_a_bulk_change_with_one_unknown_name_drains_the_others(
    bare: httpx.AsyncClient, client: SlurmClient
) -> None:
    body = {"name": ["node[01-02]", "nosuch"], "state": ["DRAIN"], "reason": "bulk"}
    answer = await bare.post("nodes/", json=body)
    nodes = [await client.node(name) for name in ("node01", "node02")]
    for name in ("node01", "node02"):
        await client.undrain(name)

    assert numbers(answer) == {INVALID_NODE_NAME}
    assert [node.reason for node in nodes if node is not None] == ["bulk", "bulk"]


async def test_a_single_look_says_mixed_for_ever_unless_it_is_told_not_to(
    bare: httpx.AsyncClient, client: SlurmClient
) -> None:
    job = await client.submit_job(SLEEPER)

    async def state(*flags: str) -> set[str]:
        answer = await bare.get("node/node01", params=[("flags", flag) for flag in flags])
        return set(answer.json()["nodes"][0]["state"])

    async def is_busy() -> bool:
        await client.nodes()  # Counts anew.
        return bool(await state("ALL", "DETAIL") & {"ALLOCATED", "MIXED"})

    await until(is_busy)
    await client.nodes()  # It may have become busy only after the last count.
    await client.cancel_job(job)

    async def is_idle() -> bool:
        return "IDLE" in await state("ALL", "DETAIL")

    await until(is_idle)

    assert "MIXED" in await state("ALL", "DETAIL", "MIXED")
    await client.nodes()
    assert "IDLE" in await state("ALL", "DETAIL", "MIXED")


@pytest.mark.parametrize(
    ("reason", "extra"),
    [
        pytest.param("k8s: Lüfter ausgefallen — 更换 🔥", '{"note": "größer"}', id="not only ASCII"),
        pytest.param("k8s: " + "x" * 995, "y" * 200_000, id="long"),
        pytest.param('k8s: "quoted" \\ and\nbroken', "[" * 5000, id="odd"),
    ],
)
async def test_odd_reasons_and_extras_come_back_as_they_were(
    client: SlurmClient, reason: str, extra: str
) -> None:
    await client.drain("node02", reason)
    await client.set_extra("node02", extra)
    node = await client.node("node02")
    await client.undrain("node02")
    await client.set_extra("node02", "")

    assert node is not None
    assert (node.reason, node.extra) == (reason, extra)


async def test_a_node_name_with_dots_is_one_name(client: SlurmClient, cluster: HostSlurm) -> None:
    name = "ip-10-0-0-1.eu.example"
    cluster.exec("scontrol", "create", f"nodename={name}", "state=CLOUD")
    await client.drain(name, "k8s: test")
    node = await client.node(name)
    await client.undrain(name)
    await client.delete_node(name)

    assert node is not None
    assert (node.name, node.state_now.is_drain) == (name, True)
    assert await client.node(name) is None


@pytest.mark.faults
async def test_a_slurmrestd_that_hangs_is_left_alone_until_it_answers_again(cluster: HostSlurm) -> None:
    async with SlurmClient(cluster.url, KeyTokens(cluster.jwt_key), timeout_s=1.0) as client:
        assert isinstance(await client.nodes(), NodeList)  # A list has more time.
        cluster.freeze_daemon("slurmrestd")
        refused: list[str] = []

        async def ask() -> None:
            with pytest.raises(SlurmUnavailableError) as raised:
                await client.node("node01")
            refused.append(str(raised.value))

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(ask)
        with pytest.raises(SlurmUnavailableError, match="gets no calls now"):
            await client.node("node01")
        cluster.thaw_daemon("slurmrestd")
        async for _ in client.recoveries():
            break

        assert isinstance(await client.nodes(), NodeList)
    assert len(refused) == 100


@pytest.mark.faults
async def test_the_version_is_chosen_again_some_time_after_an_outage(
    cluster: HostSlurm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunk_slurm.rest.SETTLED_S", 0.1)
    caplog.set_level("INFO")
    async with SlurmClient(cluster.url, KeyTokens(cluster.jwt_key)) as client:
        await client.partitions()
        cluster.kill_daemon("slurmrestd")
        for _ in range(FAILURES):
            with pytest.raises(SlurmUnavailableError):
                await client.partitions()
        cluster.start_daemon("slurmrestd")

        await until(lambda: caplog.text.count("slurm api chosen") == 2)

        assert await client.partitions()


async def test_another_slurmrestd_is_asked_where_the_first_is_gone(
    cluster: HostSlurm,
) -> None:
    url = f"http://127.0.0.1:1,{cluster.url}"
    async with SlurmClient(url, KeyTokens(cluster.jwt_key)) as client:
        assert not isinstance(await client.nodes(), NotModified)


async def test_a_look_at_a_job_is_one_question_to_slurmctld_and_none_about_its_federation(
    bare: httpx.AsyncClient, client: SlurmClient
) -> None:
    job = await client.submit_job(replace(SLEEPER, hold=True))

    async def asked() -> Counter[str]:
        counts = (await client.diag()).rpcs_by_message_type
        return Counter({rpc.message_type: rpc.count for rpc in counts if "STATS" not in rpc.message_type})

    before = await asked()
    await bare.get(f"job/{job}")
    between = await asked()
    look = await client.job(job)
    after = await asked()
    await client.cancel_job(job)

    assert look is not None
    assert (between - before)["REQUEST_FED_INFO"] == 1
    assert (after - between)["REQUEST_FED_INFO"] == 0
    assert (after - between)["REQUEST_JOB_INFO_SINGLE"] == 1


async def test_bytes_that_are_no_utf8_are_replaced_and_keep_nobody_else_from_being_told(
    cluster: HostSlurm, client: SlurmClient
) -> None:
    options = "--parsable --hold --chdir=/ --output=/dev/null --wrap=true"
    submit = f"sbatch {options} --job-name=$'a\\xff' --comment=$'\\xe9'"
    job = int(cluster.exec("bash", "-c", submit))
    try:
        cluster.exec("bash", "-c", "scontrol update nodename=node01 state=drain reason=$'fan \\xff'")

        found = await client.job(job)
        nodes = await client.nodes()

        assert found is not None
        assert found.name == "a\ufffd"
        assert isinstance(nodes, NodeList)
        assert {node.name: node.reason for node in nodes.nodes}["node01"] == "fan \ufffd"
    finally:
        cluster.exec("scancel", str(job))
        cluster.exec("scontrol", "update", "nodename=node01", "state=undrain")
