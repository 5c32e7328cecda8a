"""What the syncer does to a real Slurm beyond drains: Extra, features, clean-up, verification, requeue."""

import json
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.base import REASON_MAX, Reply
from sunk_events.jobs import JobEnded
from sunk_events.locks import LockState
from sunk_events.nodes import NodeExtraReplaced
from sunk_events.nodesets import KubeWatchState
from sunk_events.requests import (
    ExplainJob,
    ExplainSlurmNode,
    Explanation,
    Finding,
    Noted,
    Refused,
    RequeueJob,
)
from sunk_events.subjects import LEADER_KEY
from sunk_lab.errors import LabError
from sunk_lab.slurm.host import HostSlurm
from sunk_runtime.clock import now
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.client import SlurmClient
from sunk_slurm.tokens import KeyTokens
from sunk_syncer.controllers.reconfigure import digest
from sunk_syncer.testing.stage import CLUSTER, Stage, is_reason, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1, N2 = "node01", "node02"
READY = ready_pod()
CORDONED = replace(READY, is_cordoned=True, cordon_reason="disk")
CORDONED_REASON = "k8s: cordon: disk"


def extra(stage: Stage, node: str = N1) -> dict[str, Any]:  # Any: JSON.
    state = stage.nodes.get(node)
    try:
        return json.loads(state.extra) if state else {}
    except json.JSONDecodeError:
        return {}


def shown(stage: Stage, node: str) -> str:
    """What Slurm itself says of *node*; nothing while slurmctld is not there."""
    try:
        return stage.slurm.exec("scontrol", "show", "node", node)
    except LabError:
        return ""


def described(stage: Stage, node: str = N1) -> int:
    """How often the node's description was written."""
    return sum(
        line["message"] == "node changed" and (line["node"], line["action"]) == (node, "DescribeNode")
        for line in stage.syncer.log
    )


async def test_extra_shows_kubernetes_side_with_one_write_a_change_and_keeps_a_users_keys(
    stage: Stage,
) -> None:
    stage.slurm.exec("scontrol", "update", f"node={N1}", 'extra={"team": "a"}')
    await stage.pod(READY)
    await until(lambda: extra(stage).get("sunk", {}).get("pod") == N1)
    await stage.pod(CORDONED)
    await stage.until_node(N1, "k8s: cordon: disk")
    await until(lambda: extra(stage)["sunk"].get("cordonReason") == "disk")
    await stage.lock(LockState(changed=datetime.now(UTC), node=N1, kube_node="k1", lock="locked"))
    await until(lambda: extra(stage)["sunk"]["lock"] == "locked")

    assert extra(stage)["team"] == "a"
    await until(lambda: described(stage) == 3)


async def test_an_extra_that_is_no_json_object_is_replaced_and_a_fact_says_so(stage: Stage) -> None:
    await stage.pod(READY)
    await until(lambda: "sunk" in extra(stage))
    stage.slurm.exec("scontrol", "update", f"node={N1}", "extra=rack 7, ask Ada")
    await until(lambda: any(isinstance(fact, NodeExtraReplaced) for fact in stage.facts))
    await until(lambda: "sunk" in extra(stage))
    (fact,) = [fact for fact in stage.facts if isinstance(fact, NodeExtraReplaced)]

    assert (fact.subject, fact.data.extra) == (N1, "rack 7, ask Ada")


async def test_a_long_and_deep_extra_of_a_user_stays(stage: Stage) -> None:
    text = json.dumps({"log": "x" * 60_000, "deep": json.loads("[" * 50 + "]" * 50)})
    stage.slurm.exec("scontrol", "update", f"node={N1}", f"extra={text}")
    await stage.pod(READY)
    await until(lambda: described(stage) == 1)
    shown = json.loads(stage.slurm.exec("scontrol", "show", "node", N1, "--json"))["nodes"][0]["extra"]

    assert {key: value for key, value in json.loads(shown).items() if key != "sunk"} == json.loads(text)


LONG = 200_000
"""Longer than the bus takes, and than a command's argument may be."""


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        pytest.param(json.dumps({"log": "x" * LONG}), True, id="an object"),
        pytest.param(
            json.dumps({"log": "Größe 🔥 " * (LONG // 8)}, ensure_ascii=False), True, id="not ASCII"
        ),
        pytest.param("{" * LONG, False, id="nested without end"),
        pytest.param("rack 7 " * (LONG // 7), False, id="no object"),
    ],
)
async def test_an_extra_of_200_kb_is_kept_or_replaced_whole_and_holds_up_nothing(
    stage: Stage, slurm: HostSlurm, text: str, *, is_kept: bool
) -> None:
    async with SlurmClient(slurm.url, KeyTokens(slurm.jwt_key)) as client:

        async def now_there() -> str:
            node = await client.node(N1)
            assert node is not None
            return node.extra

        async def is_described() -> bool:
            return '"sunk":' in await now_there()

        await client.set_extra(N1, text)
        was_there = await now_there()
        await stage.pod(READY)
        await until(is_described)
        await stage.pod(CORDONED)
        await stage.until_node(N1, CORDONED_REASON)
        await until(lambda: described(stage) == 2)
        shown = json.loads(await now_there())

    assert was_there == text
    assert shown.pop("sunk")["cordonReason"] == "disk"
    assert shown == (json.loads(text) if is_kept else {})
    lost = {fact.data.extra for fact in stage.facts if isinstance(fact, NodeExtraReplaced)}
    assert lost == (set[str]() if is_kept else {text[:REASON_MAX]})
    assert described(stage) == 2


async def test_features_follow_the_nodeset_and_a_users_stay(stage: Stage) -> None:
    def features() -> set[str]:
        state = stage.nodes.get(N1)
        return set(state.features) if state else set()

    given = ("AvailableFeatures=mine,asleep", "ActiveFeatures=mine")
    stage.slurm.exec("scontrol", "update", f"node={N1}", *given)
    await stage.pod(replace(READY, features=("h100", "zone-a")))
    await until(lambda: features() == {"mine", "h100", "zone-a"})
    await stage.pod(replace(READY, features=("h100", "zone-b")))
    await until(lambda: features() == {"mine", "h100", "zone-b"})
    await stage.pod(READY)
    await until(lambda: features() == {"mine"})
    assert sorted(re.findall("(?<=AvailableFeatures=).*", shown(stage, N1))[0].split(",")) == [
        "asleep",
        "mine",
    ]


async def test_the_record_of_a_node_is_deleted_when_no_nodeslice_has_it_and_no_job_is_on_it(
    stage: Stage,
) -> None:
    ours, others = "gone-000-012", "theirs-000-012"
    await stage.node_slice(N1, ours)
    for name in (ours, others):
        stage.slurm.add_node(name)
    await stage.pod(READY)
    await stage.pod(replace(READY, pod=ours))
    await until(lambda: extra(stage, ours).get("sunk", {}).get("pod") == ours)
    job = submit(stage, f"--nodelist={ours}", "sleep 300")
    await until(lambda: (state := stage.nodes.get(ours)) is not None and state.is_busy)

    await stage.pod_forgotten(ours)
    await stage.pod_forgotten(N1)  # A static node, which no NodeSet has any more either.
    await stage.node_slice()
    await until(lambda: stage.syncer.has_logged("node record kept"))
    assert stage.nodes.get(ours) is not None
    stage.slurm.exec("scancel", job)
    await until(lambda: stage.nodes.get(ours) is None)
    stage.slurm.kill_daemon(ours)

    assert stage.nodes.get(others) is not None
    assert stage.nodes.get(N1) is not None
    stage.slurm.kill_daemon(others)
    stage.slurm.exec("scontrol", "delete", f"nodename={others}")


async def test_a_record_with_a_drain_of_others_is_kept_until_they_resume_the_node(stage: Stage) -> None:
    broken = "broken-000-012"
    await stage.node_slice(N1, broken)
    stage.slurm.add_node(broken)
    await stage.pod(replace(READY, pod=broken))
    await until(lambda: extra(stage, broken).get("sunk", {}).get("pod") == broken)
    stage.slurm.exec("scontrol", "update", f"node={broken}", "state=drain", "reason=bad dimm")
    await stage.until_node(broken, "bad dimm")

    await stage.pod_forgotten(broken)
    await stage.node_slice(N1)
    await until(lambda: stage.syncer.has_logged("node record kept"))
    assert "bad dimm" in shown(stage, broken)
    explained = await stage.ask(ExplainSlurmNode(node=broken))
    assert isinstance(explained, Explanation)
    assert any("keeps Slurm's record" in finding.what for finding in explained.findings)
    stage.slurm.exec("scontrol", "update", f"node={broken}", "state=resume")
    await until(lambda: stage.nodes.get(broken) is None)
    stage.slurm.kill_daemon(broken)


async def test_while_nobody_sees_kubernetes_nothing_is_drained_and_it_is_said_why(stage: Stage) -> None:
    view = StateView(stage.bus, CLUSTER, KubeWatchState)
    writer = StateWriter(stage.bus, view, fence=None)

    async def see() -> None:
        state = KubeWatchState(changed=now(), seen=now())
        await writer.record(LEADER_KEY, state, revision=view.revision(LEADER_KEY))

    async def is_explained() -> bool:
        reply = await stage.ask(ExplainSlurmNode(node=N1))
        assert isinstance(reply, Explanation)
        return any("nodeset-controller" in finding.because for finding in reply.findings)

    await stage.pod(READY)
    await stage.stop_syncer()
    async with following(view):
        await view.complete()
        await see()
        stage.syncer.start(kube_silent_max_s="0.5")
        await until(is_explained)
        await stage.pod(CORDONED)
        await until(lambda: is_deferred(stage, "no message from the nodeset-controller", "drain"))
        is_left = "DRAIN" not in shown(stage, N1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.until_node, N1, CORDONED_REASON)
            while (told := stage.nodes.get(N1)) is not None and not told.is_drain:
                await see()
                await anyio.sleep(0.1)

    assert is_left


@pytest.mark.faults
async def test_a_bus_that_lost_the_nodeslices_deletes_no_record(stage: Stage) -> None:
    ours = "kept-000-012"
    await stage.node_slice(ours)
    stage.slurm.add_node(ours)
    await stage.pod(replace(READY, pod=ours))
    await until(lambda: extra(stage, ours).get("sunk", {}).get("pod") == ours)
    for view in (stage.pods.view, stage.slices.view):
        await stage.bus.js.delete_stream(f"KV_{view.bucket}")
    await until(lambda: is_deferred(stage, "has no NodeSlice"))
    await until(lambda: stage.slices.view.is_untouched and stage.slices.view.is_complete)
    await stage.node_slice(N1)  # Not all NodeSets are told again at once.
    await until(lambda: is_deferred(stage, "NodeSlices for a short time only"))
    stage.slurm.kill_daemon(ours)

    assert ours in stage.slurm.exec("scontrol", "show", "nodes")
    stage.slurm.exec("scontrol", "delete", f"nodename={ours}")


def is_deferred(stage: Stage, because: str, loop: str = "clean_up") -> bool:
    """Whether that was put off *because*."""
    lines = (line for line in stage.syncer.log if line.get("loop") == loop)
    return any(because in line.get("error", "") for line in lines)


@pytest.mark.faults
async def test_a_slurmctld_that_is_back_without_its_state_is_told_and_drained_as_before(stage: Stage) -> None:
    dynamic = "back-000-012"
    await stage.node_slice(N1, N2, dynamic)
    stage.slurm.add_node(dynamic)
    await until(lambda: stage.nodes.get(dynamic) is not None)
    await stage.pod(CORDONED)
    await stage.until_node(N1, CORDONED_REASON)
    job = submit(stage, f"--nodelist={N2}", "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))
    stage.slurm.kill_daemon("slurmctld")
    stage.slurm.exec("sh", "-c", "rm -rf /lab/state/*")
    stage.slurm.start_daemon("slurmctld")

    await until(lambda: stage.nodes.get(dynamic) is None and stage.jobs.get(job) is None)
    await until(lambda: f"Reason={CORDONED_REASON}" in shown(stage, N1))
    await stage.until_node(N2, None)
    await stage.pod(READY)
    await stage.until_node(N1, None)
    stage.slurm.kill_daemon(dynamic)

    assert "NodeRemoved" in stage.published(dynamic)
    ended = [fact.data.state for fact in stage.facts if isinstance(fact, JobEnded) and fact.subject == job]
    assert ended == ["UNKNOWN"]
    assert "NodeDrained" not in stage.published(N2)
    assert stage.syncer.is_running()


async def test_a_drain_that_asks_for_it_goes_with_a_newer_verification(stage: Stage) -> None:
    reason = "nhc: gpu 3 (sunk:verify-undrain)"
    await stage.pod(replace(READY, hpc_verified=datetime.now(UTC) - timedelta(hours=1)))
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", f"reason={reason}")
    stage.slurm.exec("scontrol", "update", f"node={N2}", "state=drain", "reason=nhc: gpu 3")
    await stage.until_node(N1, reason)
    await stage.until_node(N2, "nhc: gpu 3")
    verified = datetime.now(UTC) + timedelta(seconds=5)
    await stage.pod(replace(READY, pod=N2, hpc_verified=verified))
    await stage.pod(replace(READY, hpc_verified=verified))
    await stage.until_node(N1, None)

    state = stage.nodes.get(N2)
    assert state is not None
    assert is_reason(state.reason, "nhc: gpu 3")


@pytest.mark.parametrize(
    ("options", "is_taken_away"),
    [
        pytest.param(("--exclusive",), True, id="the whole node"),
        pytest.param(("--exclusive", "--no-requeue"), False, id="not to be requeued"),
        pytest.param(("--ntasks=1",), None, id="a part of the node"),
    ],
)
async def test_a_job_in_the_way_is_requeued_or_the_asker_told_why_not(
    stage: Stage, options: tuple[str, ...], *, is_taken_away: bool | None
) -> None:
    has_call = "24.11" not in stage.slurm.exec("scontrol", "--version")
    is_taken_away = has_call if is_taken_away is None else is_taken_away
    await stage.pod(READY)
    job = submit(stage, "--requeue", f"--nodelist={N1}", *options, "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))
    await stage.pod(replace(READY, is_condemned=True))
    await stage.until_node(N1, "k8s: pod pending deletion", is_busy=True)
    first = await requeue(stage, job)
    if is_taken_away:
        await until(lambda: "JobRequeued" in stage.published(job))
    again = await requeue(stage, job)
    stage.slurm.exec("scancel", job)

    assert isinstance(first, Noted if is_taken_away else Refused)
    assert first == again
    await stage.until_node(N1, "k8s: pod pending deletion")


async def test_a_job_that_is_elsewhere_or_unknown_is_left_alone(stage: Stage) -> None:
    job = submit(stage, f"--nodelist={N2}", "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))

    assert [await requeue(stage, job), await requeue(stage, "999999")] == [Noted(), Noted()]
    assert "JobRequeued" not in stage.published(job)


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        pytest.param(("--array=1-20",), "tasks", id="the last task of an array"),
        pytest.param((f"-w{N2}", "-n1", ":", f"-w{N1}", "-n1"), "components", id="a later component"),
    ],
)
async def test_a_task_is_requeued_alone_and_a_heterogeneous_job_as_a_whole(
    stage: Stage, options: tuple[str, ...], whole: str
) -> None:
    has_call = "24.11" not in stage.slurm.exec("scontrol", "--version")
    script = '[ "${SLURM_ARRAY_TASK_ID:-20}" -le 14 ] || sleep 600'
    leader = submit(stage, "--requeue", "-n1", "-c1", "--mem=10", *options, script)
    job = int(leader) + (whole == "components")
    running = 6 if whole == "tasks" else 2
    await until(lambda: shown_states(stage) == ["RUNNING"] * running)
    if whole == "tasks":  # The others are as they are, wherever the last one runs.
        node = stage.slurm.exec("squeue", "-h", f"--jobs={leader}_20", "-o", "%N").strip()
    else:
        node = N1

    reply = await requeue(stage, str(job), node)

    if not has_call:
        assert isinstance(reply, Refused)  # With the node set down others would be requeued too.
        assert shown_states(stage) == ["RUNNING"] * running
        return
    assert reply == Noted()
    is_back = "PENDING" if whole == "components" else "RUNNING"
    await until(lambda: shown_states(stage) == sorted(["PENDING", *[is_back] * (running - 1)]))
    if whole == "tasks":
        (alone,) = stage.slurm.exec("squeue", "-h", "-t", "pending", "-o", "%F_%K").split()
        assert alone == f"{leader}_20"


def shown_states(stage: Stage) -> list[str]:
    return sorted(stage.slurm.exec("squeue", "--noheader", "--array", "-o", "%T").split())


async def requeue(stage: Stage, job: str, node: str = N1) -> Reply:
    question = RequeueJob(job=int(job), node=node, reason="update")
    return await stage.ask(question)


def submit(stage: Stage, *options: str) -> str:
    *more, script = options
    words = ("-D/", "-o/dev/null", f"--wrap={script}")
    return stage.slurm.exec("sbatch", "--parsable", *words, *more).strip()


async def test_a_node_and_a_job_are_explained(stage: Stage) -> None:
    await stage.pod(CORDONED)
    await stage.until_node(N1, CORDONED_REASON)
    job = submit(stage, "--hold", "true")
    await until(lambda: stage.jobs.get(job) is not None)
    node = await stage.ask(ExplainSlurmNode(node=N1))
    pending = await stage.ask(ExplainJob(job=int(job)))
    unknown = await stage.ask(ExplainSlurmNode(node="nosuch"))
    stage.slurm.exec("scancel", job)

    assert isinstance(node, Explanation)
    assert isinstance(pending, Explanation)
    assert isinstance(unknown, Refused)
    assert node.findings[0].what == "drained: k8s: cordon: disk"
    assert node.findings[0].would_change == "kubectl uncordon"
    assert "Held" in pending.findings[0].because


async def test_a_job_that_waits_is_told_the_place_in_which_slurm_then_starts_it(stage: Stage) -> None:
    """Each takes all nodes, so that they run one after the other; who is held is in nobody's way."""
    whole = ("--exclusive", "--nodes=2")
    taken = submit(stage, *whole, "sleep 600")
    await until(lambda: "JobStarted" in stage.published(taken))
    low, high = (submit(stage, *whole, f"--priority={number}", "sleep 1.5") for number in (100, 3000))
    array = submit(stage, *whole, "--priority=2000", "--array=1-3", "sleep 1.5")
    mine, later = (submit(stage, *whole, "--priority=1000", "sleep 1.5") for _ in range(2))
    held = submit(stage, *whole, "--hold", "true")
    order = high, array, mine, later, low
    await until(lambda: all(is_told(stage, job) for job in (*order, held)))

    async def place(job: str) -> Finding | None:
        reply = await stage.ask(ExplainJob(job=int(job)))
        assert isinstance(reply, Explanation)
        return next((one for one in reply.findings if "in the queue of" in one.what), None)

    told = {job: found for job in (*order, held) if (found := await place(job)) is not None}
    stage.slurm.exec("scancel", taken)
    await until(lambda: all(is_over(stage, job) for job in order))
    stage.slurm.exec("scancel", held)

    places = zip(order, (1, 2, 5, 6, 7), strict=True)
    assert {job: found.what for job, found in told.items()} == {
        job: f"place {number} of 7 in the queue of main" for job, number in places
    }
    assert f"job {high} of root" in told[mine].because
    assert f"job {array} of root" in told[mine].because
    assert "3 tasks" in told[mine].because
    states = [stage.jobs.get(job) for job in order]
    started = [state.started for state in states if state is not None and state.started is not None]
    assert len(started) == len(order)
    assert started == sorted(started)


def is_over(stage: Stage, job: str) -> bool:
    state = stage.jobs.get(job)
    return state is not None and state.is_over


def is_told(stage: Stage, job: str) -> bool:
    """Whether the bus has a job, and its priority."""
    state = stage.jobs.get(job)
    return state is not None and state.priority is not None


async def test_slurm_is_reconfigured_when_a_file_changes(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text("a")
    settings = {
        "reconfigure_files": str(file),
        "reconfigure_after_s": "0.2",
        "reconfigure_again_s": "0.2",  # Each change is told twice.
    }
    await stage.stop_syncer()
    stage.syncer.start(**settings)
    await until(lambda: stage.syncer.has_logged("slurm reconfigured", times=2))
    file.write_text("b")
    await until(lambda: stage.syncer.has_logged("slurm reconfigured", times=4))
    await stage.pod(CORDONED)
    await stage.until_node(N1, "k8s: cordon: disk")
    read = digest((file,))
    await until(lambda: [told.reconfigured for told in stage.statistics.values()] == [read])
    await stage.stop_syncer()
    stage.syncer.start(**settings)
    await stage.pod(READY)
    await stage.until_node(N1, None)
    file.write_text("c")
    await until(lambda: stage.syncer.has_logged("slurm reconfigured", times=6))
    await stage.pod(CORDONED)
    await stage.until_node(N1, "k8s: cordon: disk")
    await stage.pod(READY)
    await stage.until_node(N1, None)

    assert not stage.syncer.has_logged("slurm reconfigured", times=7)


async def test_a_node_with_dots_is_drained_with_a_long_reason_of_any_alphabet(stage: Stage) -> None:
    name, reason = "gpu.rack-07", "Plätte 硬盘 " + "x" * 1000
    stage.slurm.add_node(name)
    await until(lambda: stage.nodes.get(name) is not None)
    await stage.pod(replace(CORDONED, pod=name, cordon_reason=reason))
    await stage.until_node(name, f"k8s: cordon: {reason}"[:1024])
    await stage.pod(replace(READY, pod=name))
    await stage.until_node(name, None)

    def drains() -> list[str]:
        changes = [line for line in stage.syncer.log if line["message"] == "node changed"]
        return [
            line["action"] for line in changes if line["node"] == name and line["action"] != "DescribeNode"
        ]

    await until(lambda: drains() == ["DrainNode", "UndrainNode"])
    stage.slurm.kill_daemon(name)
    stage.slurm.exec("scontrol", "delete", f"nodename={name}")


async def test_of_two_syncers_the_other_takes_over_where_the_first_is_told_to_stop(
    stage: Stage, tmp_path: Path
) -> None:
    other = stage.syncer.another(tmp_path / "other")
    other.start()
    try:
        await stage.pod(READY)
        await until(lambda: "sunk" in extra(stage))
        stage.syncer.kill(signal.SIGTERM)
        await until(lambda: other.has_logged("leading"))
        await stage.pod(CORDONED)
        await stage.until_node(N1, "k8s: cordon: disk")

        def changed() -> set[str]:
            return {line["node"] for line in other.log if line["message"] == "node changed"}

        await until(lambda: changed() == {N1})
    finally:
        other.close()
