"""Many nodes at once, and what ReturnToService makes of a Pod that went."""

import re
from collections.abc import Iterator

import anyio
import httpx
import pytest
from msgspec.structs import replace

from sunk_events.requests import ConfirmNode, NodeConfirmed
from sunk_lab.ports import free_ports
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.testing import WITHIN_S, until
from sunk_syncer.testing.stage import Stage, is_reason, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1 = "node01"
NODES = 40
READY = ready_pod()
CORDONED = replace(READY, is_cordoned=True, cordon_reason="disk")


def cluster_id(cluster: tuple[Release, int, int]) -> str:
    release, count, policy = cluster
    return f"{release.version} {count} nodes, ReturnToService={policy}"


@pytest.fixture(scope="module")
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    """A cluster of so many nodes with that ReturnToService."""
    release, count, policy = request.param
    more = (f"ReturnToService={policy}",)
    with running_slurm(release, nodes=NodeRange(count=count, first_port=0), more=more) as slurm:
        yield slurm


@pytest.mark.parametrize(
    "slurm", [(release, NODES, 2) for release in RELEASES], indirect=True, ids=cluster_id
)
async def test_many_cordons_at_once_are_few_calls_and_leave_anothers_drain_alone(stage: Stage) -> None:
    names = sorted(stage.nodes.keys())
    by_hand, others = names[0], names[1:]
    stage.slurm.exec("scontrol", "update", f"node={by_hand}", "state=drain", "reason=see k8s: ticket")
    await stage.until_node(by_hand, "see k8s: ticket")
    async with anyio.create_task_group() as tasks:
        for name in names:
            cordoned = replace(READY, pod=name, uid=name, is_cordoned=True, cordon_reason="rack")
            tasks.start_soon(stage.pod, cordoned)
    await until(
        lambda: all((node := stage.nodes.get(name)) is not None and node.is_drain for name in names),
    )
    calls = [line["nodes"] for line in stage.syncer.log if line["message"] == "nodes drained together"]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(stage.pod, replace(READY, pod=name, uid=name))
    for name in others:
        await stage.until_node(name, None)

    node = stage.nodes.get(by_hand)
    assert node is not None
    assert is_reason(node.reason, "see k8s: ticket")
    assert max(calls) > 1
    assert len(calls) <= NODES / 2


@pytest.mark.parametrize(
    "slurm", [(release, NODES, 2) for release in RELEASES], indirect=True, ids=cluster_id
)
async def test_nobody_is_drained_upon_the_list_before_one_that_fails(stage: Stage) -> None:
    """slurmrestd hangs for longer than a list may take, and goes on soon after the list before it."""
    port = free_ports(1)
    await stage.stop_syncer()
    stage.syncer.start(poll_timeout_s="1", http_port=str(port))
    names = sorted(stage.nodes.keys())
    others, by_hand = names[:-10], names[-10:]

    async def cordon(some: list[str], *, is_cordoned: bool = True) -> None:
        async with anyio.create_task_group() as tasks:
            for name in some:
                pod = replace(READY, pod=name, uid=name, is_cordoned=is_cordoned, cordon_reason="rack")
                tasks.start_soon(stage.pod, pod)

    await cordon(others)  # The lists that come of it show the ten as not drained.
    for name in others:
        await stage.until_node(name, "k8s: cordon: rack")
    await cordon(others, is_cordoned=False)
    for name in others:
        await stage.until_node(name, None)

    stage.slurm.freeze_daemon("slurmrestd")
    stage.slurm.exec("scontrol", "update", f"node={','.join(by_hand)}", "state=drain", "reason=bad fan")
    await cordon(others)  # So many looks wait that those who come now ask for a list.
    await cordon(by_hand)
    await until(lambda: has_deferred(stage, "look at all nodes: no answer within 1 s"))
    failed = await lists_ended(port)

    async def has_next_failed() -> bool:
        return await lists_ended(port) > failed

    await until(has_next_failed)  # Who came during that list shares the next one.
    stage.slurm.thaw_daemon("slurmrestd")
    for name in others:
        await stage.until_node(name, "k8s: cordon: rack")
    for name in by_hand:
        await stage.until_node(name, "bad fan")
    drains = stage.slurm.exec("sinfo", "-h", "-N", "-o", "%N|%E").split("\n")
    assert {line.strip() for line in drains if line.strip()} == {
        *(f"{name}|k8s: cordon: rack" for name in others),
        *(f"{name}|bad fan" for name in by_hand),
    }


async def lists_ended(port: int) -> int:
    """Return how many lists, for drains of many nodes, the syncer with that *port* has got, or not got."""
    async with httpx.AsyncClient(trust_env=False, timeout=WITHIN_S) as http:
        answer = await http.get(f"http://127.0.0.1:{port}/metrics")
    (count,) = re.findall(r'^sunk_syncer_looks_total\{kind="nodes"\} (\S+)$', answer.text, re.MULTILINE)
    return int(float(count))


def has_deferred(stage: Stage, error: str) -> bool:
    """Whether a drain was put off because of *error*."""
    return any(
        (line["message"], line.get("loop"), line.get("error")) == ("key deferred", "drain", error)
        for line in stage.syncer.log
    )


@pytest.mark.parametrize(
    "slurm",
    [(release, 1, policy) for release in RELEASES for policy in (0, 1, 2)],
    indirect=True,
    ids=cluster_id,
)
async def test_a_pod_that_went_requeues_its_job_and_return_to_service_decides_when_the_node_is_back(
    stage: Stage, request: pytest.FixtureRequest
) -> None:
    *_, policy = request.node.callspec.params["slurm"]
    await stage.pod(READY)
    job = stage.slurm.exec(
        "sbatch", "--parsable", "--requeue", "-D/", "-o/dev/null", "--wrap=sleep 300"
    ).strip()
    await until(lambda: "JobStarted" in stage.published(job))
    stage.slurm.kill_daemon(N1)
    await stage.pod(replace(READY, phase="gone", is_ready=False))
    await until(
        lambda: (
            (node := stage.nodes.get(N1)) is not None
            and (node.is_down, node.is_drain) == (True, True)
            and is_reason(node.reason, "k8s: pod terminated")
        ),
    )
    await until(lambda: "JobRequeued" in stage.published(job))
    stage.slurm.exec("scancel", job)

    stage.slurm.start_daemon(N1)
    await stage.pod(replace(READY, uid="uid-2", phase="waiting", is_ready=False))
    await stage.pod(replace(READY, uid="uid-2"))
    await until(lambda: (node := stage.nodes.get(N1)) is not None and not node.is_drain)
    if policy == 2:
        await until(lambda: (node := stage.nodes.get(N1)) is not None and not node.is_down)
    else:
        node = stage.nodes.get(N1)
        assert node is not None
        assert node.is_down  # A user has to resume it: that is what this setting means.
        stage.slurm.exec("scontrol", "update", f"node={N1}", "state=resume")
        await until(lambda: (node := stage.nodes.get(N1)) is not None and not node.is_down)


async def dead(stage: Stage) -> None:
    """Have the slurmd die, and return when slurmctld cannot reach it any more.

    What it answered before may be taken in two seconds later: where ReturnToService is 2 that brings back a
    node that was set DOWN meanwhile (``node_did_resp: node node01 returned to service``).
    """
    stage.slurm.kill_daemon(N1)
    await until(lambda: "*" in stage.slurm.exec("sinfo", "-h", "-n", N1, "-o", "%T"))


@pytest.mark.parametrize("slurm", [(release, 1, 2) for release in RELEASES], indirect=True, ids=cluster_id)
async def test_a_slurmd_that_comes_back_later_than_its_pod_is_ready_is_seen_though_no_list_is_due(
    stage: Stage,
) -> None:
    await stage.stop_syncer()
    stage.syncer.start(quiet_share="0.00001", quiet_max_s="3600")
    await stage.pod(READY)
    await dead(stage)
    await stage.pod(replace(READY, phase="gone", is_ready=False))
    await until(lambda: (node := stage.nodes.get(N1)) is not None and node.is_down)

    await stage.pod(replace(READY, uid="uid-2"))
    await until(lambda: (node := stage.nodes.get(N1)) is not None and not node.is_drain)
    await anyio.sleep(10)  # Until the lists are over that the writes have stirred.
    was_down = stage.nodes.get(N1)
    stage.slurm.start_daemon(N1)

    await until(lambda: (node := stage.nodes.get(N1)) is not None and not node.is_down)
    assert was_down is not None
    assert was_down.is_down


@pytest.mark.parametrize(
    ("slurm", "is_alive"),
    [
        pytest.param(
            (release, 1, policy),
            is_alive,
            id=f"{cluster_id((release, 1, policy))}, slurmd {'runs' if is_alive else 'is dead'}",
        )
        for release in RELEASES
        for policy, is_alive in ((0, False), (0, True), (1, True), (2, False))
    ],
    indirect=["slurm"],
)
async def test_a_node_that_is_down_by_hand_is_drained_to_be_emptied_and_takes_no_job_when_it_comes_back(
    stage: Stage, request: pytest.FixtureRequest, *, is_alive: bool
) -> None:
    *_, policy = request.node.callspec.params["slurm"]
    await stage.pod(READY)
    if policy == 2:  # A node that answers is back at once.
        await dead(stage)
    elif not is_alive:
        stage.slurm.kill_daemon(N1)
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=down", "reason=bad dimm")
    await until(lambda: is_down_for(stage, "bad dimm"))
    await stage.pod(replace(READY, is_condemned=True))
    await until(lambda: is_down_for(stage, "k8s: pod pending deletion; was down: bad dimm"))
    reply = await stage.ask(ConfirmNode(node=N1))
    assert isinstance(reply, NodeConfirmed)
    assert reply.is_drained_and_idle

    job = stage.slurm.exec("sbatch", "--parsable", "-D/", "-o/dev/null", "--wrap=sleep 300").strip()
    if not is_alive:
        stage.slurm.start_daemon(N1)
    if policy == 2:
        await until(lambda: (node := stage.nodes.get(N1)) is not None and not node.is_down)
    else:
        await until(lambda: not is_silent(stage))
    node = stage.nodes.get(N1)
    assert node is not None
    assert (node.is_drain, node.is_down) == (True, policy != 2)
    assert "PENDING" in stage.slurm.exec("squeue", "-h", "-j", job, "-o", "%T")
    await stage.pod(READY)
    if policy != 2:  # Slurm would forget why it is down with the drain: that goes when somebody resumes it.
        await stage.pod(CORDONED)
        await until(lambda: is_down_for(stage, "k8s: cordon: disk; was down: bad dimm"))
        await stage.pod(READY)
        assert "was down: bad dimm" in stage.slurm.exec("scontrol", "show", "node", N1)
        stage.slurm.exec("scontrol", "update", f"node={N1}", "state=resume")
    await until(lambda: (node := stage.nodes.get(N1)) is not None and not node.is_drain)
    await until(lambda: "JobStarted" in stage.published(job))


def is_down_for(stage: Stage, reason: str) -> bool:
    node = stage.nodes.get(N1)
    return node is not None and node.is_down and is_reason(node.reason, reason)


def is_silent(stage: Stage) -> bool:
    node = stage.nodes.get(N1)
    return node is None or node.is_not_responding
