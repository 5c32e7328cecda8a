"""The whole syncer, a process of its own, between a real Slurm and a real NATS."""

import json
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from msgspec.structs import replace

from sunk_events import subjects
from sunk_events.base import Reply, Request
from sunk_events.locks import LockState
from sunk_events.nodes import NodeDrained, SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_events.requests import ConfirmNode, Later, NodeConfirmed, Noted, NudgeJob, NudgeNode
from sunk_lab.cut import Cable
from sunk_runtime.clock import now
from sunk_runtime.errors import NoAnswerError
from sunk_runtime.requests import ask
from sunk_runtime.testing import until
from sunk_syncer.testing.stage import CLUSTER, Stage, is_reason, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1, N2 = "node01", "node02"
RESETS = 8
"""Three calls, and probes ever later until they are as seldom as they get."""
READY = ready_pod()
CORDONED = replace(READY, is_cordoned=True, cordon_reason="disk")
OVERDUE = PlacementState(
    changed=datetime.now(UTC),
    uid="pod-uid",
    namespace="team",
    pod="train",
    phase="ending",
    node=N1,
    is_overdue=True,
)


async def test_a_cordon_drains_and_an_uncordon_undrains(stage: Stage) -> None:
    await stage.pod(READY)
    await stage.pod(CORDONED)
    await stage.until_node(N1, "k8s: cordon: disk")
    await stage.pod(READY)
    await stage.until_node(N1, None)

    assert stage.published(N1) == ["NodeRegistered", "NodeDrained", "NodeUndrained"]
    assert stage.published(N2) == ["NodeRegistered"]


async def test_a_drain_of_someone_else_is_left_as_it_is(stage: Stage) -> None:
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", "reason=bad dimm")
    await stage.until_node(N1, "bad dimm")
    await stage.pod(CORDONED)
    await stage.pod(replace(READY, pod=N2, is_cordoned=True))
    await stage.until_node(N2, "k8s: cordon")  # By now the other one would be drained too.
    await stage.pod(READY)
    await stage.pod(replace(READY, pod=N2))
    await stage.until_node(N2, None)

    node = stage.nodes.get(N1)
    assert node is not None
    assert node.is_drain
    assert is_reason(node.reason, "bad dimm")


async def test_a_drain_removed_by_hand_is_put_back_while_its_cause_stands(stage: Stage) -> None:
    await stage.pod(CORDONED)
    await stage.until_node(N1, "k8s: cordon: disk")
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=undrain")
    await until(lambda: "NodeUndrained" in stage.published(N1))
    await stage.until_node(N1, "k8s: cordon: disk")
    await stage.pod(READY)
    await stage.until_node(N1, None)


async def test_the_reason_follows_the_cause(stage: Stage) -> None:
    await stage.pod(READY)
    await stage.pod(replace(READY, is_ready=False))
    await stage.until_node(N1, "k8s: pod not ready")
    await stage.pod(replace(READY, is_condemned=True))
    await stage.until_node(N1, "k8s: pod pending deletion")
    await stage.pod(replace(CORDONED, phase="terminating", is_ready=False))
    await stage.until_node(N1, "k8s: pod terminated: cordon: disk")
    await stage.pod(replace(READY, phase="waiting", is_ready=False, uid="uid-2"))
    await stage.pod(replace(READY, uid="uid-2"))
    await stage.until_node(N1, None)

    assert stage.published(N1) == ["NodeRegistered", "NodeDrained", "NodeUndrained"]


async def test_an_overdue_pod_drains_its_node_until_it_is_gone(stage: Stage) -> None:
    await stage.pod(READY)
    await stage.placement(OVERDUE)
    await stage.until_node(N1, "k8s: pod deletion timeout")
    await stage.placements.forget(OVERDUE.uid, revision=stage.placements.view.revision(OVERDUE.uid))
    await stage.until_node(N1, None)


async def test_a_failed_prologs_drain_is_lifted_when_nothing_is_in_the_way(stage: Stage) -> None:
    await stage.pod(READY)
    await stage.lock(LockState(changed=now(), node=N1, kube_node="k1", lock="false"))
    reason = "k8s: prolog pre-hook failed: team/web (sunk:verify-undrain)"
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", f"reason={reason}")
    await until(lambda: "NodeUndrained" in stage.published(N1))
    await stage.until_node(N1, None)

    (drained,) = (fact for fact in stage.facts if isinstance(fact, NodeDrained))
    assert drained.data.reason == reason


async def test_a_pod_that_is_gone_takes_its_node_down_and_its_jobs_are_requeued(stage: Stage) -> None:
    await stage.pod(READY)
    job = submit(stage, "--requeue", f"--nodelist={N1}", "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))
    await stage.pod(replace(READY, phase="gone", is_ready=False))
    await until(lambda: "NodeDown" in stage.published(N1))
    await until(lambda: "JobRequeued" in stage.published(job))
    # This node's slurmd is alive, so ReturnToService=2 brings it back: drained, and not set down again.
    await stage.until_node(N1, "k8s: pod terminated")
    stage.slurm.exec("scancel", job)
    await stage.pod(replace(READY, uid="uid-2"))
    await stage.until_node(N1, None)

    assert stage.published(N1).count("NodeDown") == 1


async def test_a_pod_that_went_while_the_syncer_was_dead_takes_its_node_down_all_the_same(
    stage: Stage,
) -> None:
    await stage.pod(READY)
    job = submit(stage, "--requeue", f"--nodelist={N1}", "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))
    await stage.crash_syncer()
    await stage.pod(replace(READY, phase="waiting", is_ready=False, uid="uid-2", gone_uid=READY.uid))
    stage.syncer.start()
    await until(lambda: "NodeDown" in stage.published(N1))
    await until(lambda: "JobRequeued" in stage.published(job))
    stage.slurm.exec("scancel", job)
    await stage.pod(replace(READY, uid="uid-2"))
    await stage.until_node(N1, None)

    assert stage.published(N1).count("NodeDown") == 1


def is_over(stage: Stage, job: str) -> bool:
    """Whether both its fact and its state say so; the state comes second."""
    state = stage.jobs.get(job)
    return (
        "JobEnded" in stage.published(job) and state is not None and state.is_over and not state.is_completing
    )


async def test_a_job_is_told_from_its_submission_to_its_end(stage: Stage) -> None:
    job = submit(stage, f"--nodelist={N1}", "--ntasks=2", "--gres=gpu:3", "--job-name=train", "sleep 300")
    await until(lambda: (state := stage.jobs.get(job)) is not None and state.is_running)
    await stage.until_node(N1, None, is_busy=True)
    state = stage.jobs.get(job)
    await until(lambda: (node := stage.nodes.get(N1)) is not None and node.gpus_allocated == 3)
    stage.slurm.exec("scancel", job)
    await until(lambda: is_over(stage, job))
    await stage.until_node(N1, None)
    ended = stage.jobs.get(job)

    assert state is not None
    assert ended is not None
    assert (state.state, state.name, state.user, state.nodes, state.cpus, state.gpus) == (
        "RUNNING",
        "train",
        "root",
        N1,
        2,
        3,
    )
    assert [(part.nodes, part.cpus, part.gpus) for part in state.allocations] == [(N1, 2, 3)]
    assert (ended.state, ended.is_over, ended.is_running, ended.is_completing) == (
        "CANCELLED",
        True,
        False,
        False,
    )
    assert stage.published(job) == ["JobSubmitted", "JobStarted", "JobEnded"]


async def test_a_requeued_job_is_told_so(stage: Stage) -> None:
    job = submit(stage, "--requeue", "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))
    stage.slurm.exec("scontrol", "requeuehold", job)
    await until(lambda: "JobRequeued" in stage.published(job))
    await until(
        lambda: (state := stage.jobs.get(job)) is not None and state.state == "PENDING",
    )

    assert "JobEnded" not in stage.published(job)


async def test_a_pending_array_is_one_state_that_counts_its_tasks(stage: Stage) -> None:
    job = submit(stage, "--hold", "--array=1-5", "true")
    await until(lambda: (state := stage.jobs.get(job)) is not None and state.array_tasks == 5)
    stage.slurm.exec("scancel", f"{job}_[1-2]")
    await until(lambda: (state := stage.jobs.get(job)) is not None and state.array_tasks == 3)


async def test_partitions_and_statistics_are_told(stage: Stage) -> None:
    await until(lambda: stage.statistics.get(subjects.STATISTICS_KEY) is not None)
    partition = stage.partitions.get("main")
    statistics = stage.statistics.get(subjects.STATISTICS_KEY)

    assert partition is not None
    assert statistics is not None
    assert (partition.state, partition.nodes, partition.cpus_total) == ("UP", "node[01-02]", 8)
    assert any(rpc.count for rpc in statistics.rpcs)


async def test_it_is_told_that_slurm_was_asked_again_though_nothing_changed(stage: Stage) -> None:
    await until(lambda: stage.statistics.get(subjects.STATISTICS_KEY) is not None)
    began = now()

    def is_told() -> bool:
        told = stage.statistics.get(subjects.STATISTICS_KEY)
        moments = (told.nodes_answered, told.jobs_answered, told.partitions_answered) if told else (None,)
        return all(moment is not None and moment > began for moment in moments)

    await until(is_told)


async def test_a_reservation_is_told_and_its_end(stage: Stage) -> None:
    about = ("ReservationName=upkeep", "StartTime=now+3600", "Duration=60", "Flags=MAINT", "Users=root")
    stage.slurm.exec("scontrol", "create", *about, f"Nodes={N1}")
    await until(lambda: stage.reservations.get("upkeep") is not None)
    told = stage.reservations.get("upkeep")
    stage.slurm.exec("scontrol", "delete", "ReservationName=upkeep")
    await until(lambda: stage.reservations.get("upkeep") is None)

    assert told is not None
    assert (told.nodes, told.nodes_total, told.users) == (N1, 1, ("root",))
    assert "MAINT" in told.flags
    assert told.starts is not None


async def test_a_hold_and_its_release_are_told(stage: Stage) -> None:
    job = submit(stage, "--hold", "sleep 300")
    await until(lambda: stage.published(job) == ["JobSubmitted", "JobHeld"])
    stage.slurm.exec("scontrol", "release", job)
    await stage.ask(NudgeJob(job=int(job)))
    await until(lambda: stage.published(job) == ["JobSubmitted", "JobHeld", "JobReleased", "JobStarted"])


async def test_a_job_comes_to_its_node_and_leaves_it(stage: Stage) -> None:
    job = submit(stage, f"--nodelist={N2}", "sleep 300")
    await until(lambda: "NodeAllocated" in stage.published(N2, but=()))
    stage.slurm.exec("scancel", job)
    await until(lambda: stage.published(N2, but=())[-1] == "NodeIdle")


async def test_a_job_that_came_and_went_between_two_looks_is_told_whole(stage: Stage) -> None:
    await stage.stop_syncer()
    job = submit(stage, "exit 3")
    await until(lambda: "FAILED" in stage.slurm.exec("scontrol", "show", "job", job))
    stage.syncer.start()
    await until(lambda: is_over(stage, job))
    state = stage.jobs.get(job)

    assert stage.published(job) == ["JobSubmitted", "JobStarted", "JobEnded"]
    assert state is not None
    assert (state.state, state.exit_code) == ("FAILED", 3)


@pytest.mark.faults
async def test_slurmrestd_may_hang_and_everything_that_waited_is_done_when_it_is_back(stage: Stage) -> None:
    await stage.pod(READY)
    stage.slurm.freeze_daemon("slurmrestd")
    await stage.pod(CORDONED)
    await until(lambda: stage.syncer.has_logged("slurmrestd gets only probes now"))
    stage.slurm.thaw_daemon("slurmrestd")
    await stage.pod(replace(CORDONED, pod=N2))
    await stage.until_node(N2, "k8s: cordon: disk")
    await stage.until_node(N1, "k8s: cordon: disk")
    for name in (N1, N2):
        await stage.pod(replace(READY, pod=name))
        await stage.until_node(name, None)


async def test_a_node_is_confirmed_only_when_it_is_drained_and_idle(stage: Stage) -> None:
    idle = await stage.ask(ConfirmNode(node=N1))
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", "reason=by hand")
    drained = await stage.ask(ConfirmNode(node=N1))
    unknown = await stage.ask(ConfirmNode(node="nosuch"))

    assert isinstance(idle, NodeConfirmed)
    assert isinstance(drained, NodeConfirmed)
    assert (idle.is_known, idle.is_drained_and_idle) == (True, False)
    assert (drained.is_known, drained.is_drained_and_idle) == (True, True)
    assert is_reason(drained.reason, "by hand")
    assert unknown == NodeConfirmed(node="nosuch", is_known=False, is_drained_and_idle=False)


async def test_a_drained_node_with_a_suspended_job_is_not_confirmed(stage: Stage) -> None:
    job = submit(stage, f"--nodelist={N1}", "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))
    stage.slurm.exec("scontrol", "suspend", job)
    await until(lambda: (told := stage.jobs.get(job)) is not None and told.state == "SUSPENDED")
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", "reason=by hand")

    held = await stage.ask(ConfirmNode(node=N1))
    stage.slurm.exec("scancel", job)

    async def is_free() -> bool:
        answer = await stage.ask(ConfirmNode(node=N1))
        return isinstance(answer, NodeConfirmed) and answer.is_drained_and_idle

    assert isinstance(held, NodeConfirmed)
    assert not held.is_drained_and_idle
    await until(is_free)


async def test_a_drained_node_whose_job_was_suspended_a_moment_ago_is_not_confirmed(stage: Stage) -> None:
    job = submit(stage, f"--nodelist={N1}", "sleep 300")
    await until(lambda: "JobStarted" in stage.published(job))
    await stage.stop_syncer()
    began = now()
    stage.syncer.start(poll_s="600")
    await until(
        lambda: (
            (told := stage.statistics.get(subjects.STATISTICS_KEY)) is not None
            and told.jobs_answered is not None
            and told.jobs_answered > began
        ),
    )
    stage.slurm.exec("scontrol", "suspend", job)
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", "reason=by hand")

    held = await stage.ask(ConfirmNode(node=N1))
    stage.slurm.exec("scancel", job)

    assert isinstance(held, NodeConfirmed)
    assert (held.is_known, held.is_drained_and_idle) == (True, False)


async def test_a_nudge_looks_at_once_where_the_next_poll_is_far_away(stage: Stage) -> None:
    await stage.stop_syncer()
    stage.syncer.start(poll_s="600")
    await until(lambda: stage.syncer.has_logged("leading", times=2))
    await until(lambda: stage.syncer.has_logged("slurm api chosen", times=2))
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", "reason=by hand")

    noted = await stage.ask(NudgeNode(node=N1))
    await stage.until_node(N1, "by hand")

    assert noted == Noted()


async def test_a_syncer_killed_and_started_again_announces_nothing_twice(stage: Stage) -> None:
    await stage.pod(CORDONED)
    job = submit(stage, f"--nodelist={N2}", "sleep 300")
    await stage.until_node(N1, "k8s: cordon: disk")
    await until(lambda: "JobStarted" in stage.published(job))
    await stage.crash_syncer()
    stage.syncer.start()
    await until(lambda: stage.syncer.has_logged("leading", times=2))
    await stage.pod(READY)
    await stage.until_node(N1, None)
    stage.slurm.exec("scancel", job)
    await until(lambda: "JobEnded" in stage.published(job))

    assert stage.published(N1) == ["NodeRegistered", "NodeDrained", "NodeUndrained"]
    assert stage.published(N2) == ["NodeRegistered"]
    assert stage.published(job) == ["JobSubmitted", "JobStarted", "JobEnded"]


async def test_what_happened_while_no_syncer_ran_is_found_and_told(stage: Stage) -> None:
    await stage.pod(READY)
    await stage.stop_syncer()
    await stage.pod(CORDONED)
    stage.slurm.exec("scontrol", "update", f"node={N2}", "state=drain", "reason=by hand")
    stage.syncer.start()
    await stage.until_node(N1, "k8s: cordon: disk")
    await stage.until_node(N2, "by hand")
    await stage.pod(READY)
    await stage.until_node(N1, None)


async def test_slurmrestd_may_go_and_come_back(stage: Stage) -> None:
    stage.slurm.kill_daemon("slurmrestd")
    await until(lambda: stage.syncer.has_logged("poll failed"))
    await stage.pod(CORDONED)
    stage.slurm.start_daemon("slurmrestd")
    await stage.until_node(N1, "k8s: cordon: disk")
    await stage.pod(READY)
    await stage.until_node(N1, None)

    assert stage.syncer.is_running()


@pytest.mark.faults
async def test_connections_to_slurmrestd_may_be_reset_for_long_and_then_all_is_done(stage: Stage) -> None:
    await stage.pod(READY)
    await stage.stop_syncer()
    async with Resetting.serving(stage.slurm.url) as slurmrestd:
        stage.syncer.start(slurm_url=slurmrestd.url)
        await until(lambda: stage.syncer.has_logged("slurm api chosen", times=2))
        await slurmrestd.reset_all()
        await stage.pod(CORDONED)
        await until(lambda: stage.syncer.has_logged("slurmrestd gets only probes now"))
        await until(lambda: slurmrestd.resets >= RESETS)
        node = stage.nodes.get(N1)
        slurmrestd.is_resetting = False
        await stage.pod(replace(CORDONED, pod=N2))  # The first one afterwards waits for nobody either.
        await stage.until_node(N2, "k8s: cordon: disk")
        await stage.until_node(N1, "k8s: cordon: disk")
        for name in (N1, N2):
            await stage.pod(replace(READY, pod=name))
            await stage.until_node(name, None)

    assert node is not None
    assert not node.is_drain
    assert stage.published(N1) == stage.published(N2) == ["NodeRegistered", "NodeDrained", "NodeUndrained"]


async def test_the_bus_may_go_and_come_back(stage: Stage) -> None:
    stage.nats.kill()
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=drain", "reason=by hand")
    stage.nats.start()
    await stage.until_node(N1, "by hand")

    assert stage.syncer.is_running()


async def test_a_node_that_slurm_deletes_is_removed_and_one_that_registers_is_told(stage: Stage) -> None:
    stage.slurm.add_node("zz-000-012")
    await until(lambda: stage.nodes.get("zz-000-012") is not None)
    stage.slurm.kill_daemon("zz-000-012")
    stage.slurm.exec("scontrol", "delete", "nodename=zz-000-012")
    await until(lambda: stage.nodes.get("zz-000-012") is None)

    assert stage.published("zz-000-012")[0] == "NodeRegistered"
    await until(lambda: stage.published("zz-000-012")[-1] == "NodeRemoved")


async def test_a_state_that_nobody_can_read_stops_nothing_and_is_written_anew(stage: Stage) -> None:
    bucket = subjects.bucket(CLUSTER, SlurmNodeState)
    pods = subjects.bucket(CLUSTER, KubePodState)
    await stage.bus.publish(subjects.key_subject(bucket, N1), b"\xff{")
    await stage.bus.publish(subjects.key_subject(pods, N2), b'{"type": "sunk.unknown.v9.thing"}')
    await stage.pod(CORDONED)
    await stage.until_node(N1, "k8s: cordon: disk")
    await stage.pod(READY)
    await stage.until_node(N1, None)

    assert stage.syncer.is_running()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(500, "proxy error", id="HTTP 500 that is not Slurm's"),
        pytest.param(200, "<html>hello</html>", id="a web page"),
        pytest.param(200, '{"nodes": [{"name": 7}], "jobs": [{}]}', id="fields of other types"),
        pytest.param(200, '{"nodes": [], "jobs": [], "partitions": []}', id="an empty cluster"),
    ],
)
async def test_an_answer_that_makes_no_sense_removes_nothing(stage: Stage, status: int, body: str) -> None:
    await stage.pod(READY)
    await until(lambda: stage.partitions.get("main") is not None)
    await stage.stop_syncer()
    async with Odd.serving(stage.slurm.url, status, body) as slurmrestd:
        stage.syncer.start(slurm_url=slurmrestd.url, doubt_s="600")
        await until(lambda: stage.syncer.has_logged("slurm api chosen", times=2))
        await stage.pod(CORDONED)
        for name in (N1, N2):
            await stage.ask(NudgeNode(node=name))
        answers = [await first_answer(stage, ConfirmNode(node=name)) for name in (N1, N2)]
        await until(
            lambda: (
                stage.syncer.has_logged("poll failed")
                or stage.syncer.has_logged("answer not plausible", times=3)
            ),
        )
        known = {*stage.nodes.keys()}
        slurmrestd.is_odd = False
        await stage.until_node(N1, "k8s: cordon: disk")
        await stage.pod(READY)
        await stage.until_node(N1, None)

    assert known == {N1, N2}
    assert [type(answer) for answer in answers] == [Later, Later]
    assert (stage.published(N1), stage.published(N2)) == (
        ["NodeRegistered", "NodeDrained", "NodeUndrained"],
        ["NodeRegistered"],
    )
    assert stage.partitions.get("main") is not None


async def first_answer(stage: Stage, request: Request) -> Reply:
    """Return what the syncer says to *request*, be it to ask later."""
    answers: list[Reply] = []

    async def is_answered() -> bool:
        try:
            answers.append(await ask(stage.bus, CLUSTER, request))
        except NoAnswerError:
            return False
        return True

    await until(is_answered)
    return answers[0]


async def test_a_second_syncer_waits_and_takes_over(stage: Stage, tmp_path: Path) -> None:
    other = stage.syncer.another(tmp_path / "other")
    other.start()
    try:
        await stage.pod(READY)
        stage.syncer.kill()
        await stage.pod(CORDONED)
        await stage.until_node(N1, "k8s: cordon: disk")

        assert other.has_logged("leading")
    finally:
        other.close()


class Resetting:
    """What stands before slurmrestd, and ends every connection with RST while it is told to."""

    def __init__(self, host: str, port: int) -> None:
        self.is_resetting = False
        self.resets = 0
        self.url = ""
        self._cable = Cable(host, port)

    @classmethod
    @asynccontextmanager
    async def serving(cls, url: str) -> AsyncGenerator["Resetting"]:
        """Serve what is served at *url*."""
        host, _, port = url.removeprefix("http://").partition(":")
        mine = cls(host, int(port))
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            mine.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610 - anyio, not Django
            tasks.start_soon(listener.serve, mine.join)
            yield mine
            tasks.cancel_scope.cancel()

    async def reset_all(self) -> None:
        """End what is connected, and from now on what comes."""
        self.is_resetting = True
        for _ in range(20):  # One that was being made is there a moment later.
            await self._cable.reset()
            await anyio.sleep(0.05)

    async def join(self, client: SocketStream) -> None:
        """Carry one connection, or end it."""
        if not self.is_resetting:
            await self._cable.join(client)
            return
        self.resets += 1
        raw: socket.socket = client.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio, not Django
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.aclose()


def submit(stage: Stage, *options: str) -> str:
    *more, script = options
    return stage.slurm.exec("sbatch", "--parsable", "-D/", "-o/dev/null", f"--wrap={script}", *more).strip()


class Odd:
    """What stands before slurmrestd, and answers the same to all but the question for API versions."""

    def __init__(self, cable: Cable, status: int, body: str) -> None:
        self.is_odd = True
        self.url = ""
        self._cable = cable
        self._status = status
        self._body = body

    @classmethod
    @asynccontextmanager
    async def serving(cls, url: str, status: int, body: str) -> AsyncGenerator["Odd"]:
        """Serve that, and what is served at *url* when it is no longer to be odd."""
        host, _, port = url.removeprefix("http://").partition(":")
        mine = cls(Cable(host, int(port)), status, body)
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            mine.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610 - anyio, not Django
            tasks.start_soon(listener.serve, mine.answer)
            yield mine
            tasks.cancel_scope.cancel()

    async def answer(self, client: SocketStream) -> None:
        """Answer one question, or carry the connection."""
        if not self.is_odd:
            await self._cable.join(client)
            return
        async with client:
            request = await client.receive()
            versions = json.dumps({"paths": {"/slurm/v0.0.42/nodes/": {}}})
            code, text = (200, versions) if b"/openapi/v3" in request else (self._status, self._body)
            head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
            await client.send((head + text).encode())
