"""The client against real Slurm, in both versions: what `client` and `wire` promise."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from sunk_lab.slurm.host import HostSlurm
from sunk_runtime.testing import until
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import INVALID_NODE_NAME, SlurmRejectedError, SlurmUnavailableError
from sunk_slurm.reads import NodeList, NotModified
from sunk_slurm.submission import JobChange, JobDescription
from sunk_slurm.tokens import FileTokens, KeyTokens
from sunk_slurm.wire import Job, Node, Number

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


@pytest.fixture
async def client(cluster: HostSlurm) -> AsyncIterator[SlurmClient]:
    async with SlurmClient(cluster.url, KeyTokens(cluster.jwt_key)) as client:
        yield client


async def until_node(client: SlurmClient, name: str, holds: Callable[[Node], bool]) -> Node:
    return await look_until(lambda: client.node(name), holds)


async def until_job(client: SlurmClient, job: int, holds: Callable[[Job], bool]) -> Job:
    return await look_until(lambda: client.job(job), holds)


T = TypeVar("T")


async def look_until(look: Callable[[], Awaitable[T | None]], holds: Callable[[T], bool]) -> T:
    seen: list[T] = []

    async def does_hold() -> bool:
        found = await look()
        seen[:] = [] if found is None else [found]
        return found is not None and holds(found)

    await until(does_hold)
    return seen[0]


SLEEPER = JobDescription(
    script="#!/bin/bash\nsleep 60\n",
    environment=("PATH=/usr/bin:/bin",),
    current_working_directory="/",
    standard_output="/dev/null",
    standard_error="/dev/null",
    name="sleeper",
    requeue=False,
)


async def test_the_best_version_that_both_speak_is_chosen(client: SlurmClient, cluster: HostSlurm) -> None:
    await client.partitions()

    assert client.version == cluster.release.api


async def test_nodes_tell_their_state_and_size(client: SlurmClient) -> None:
    node = await until_node(client, "node01", lambda node: node.state_now.base == "IDLE")

    assert (node.name, node.cpus, node.real_memory, node.gres, node.partitions) == (
        "node01",
        4,
        16000,
        "gpu:8",
        ("main",),
    )
    assert node.slurmd_start_time.moment is not None


async def test_nothing_new_is_not_modified_and_one_change_returns_all_nodes(client: SlurmClient) -> None:
    first = await client.nodes()

    async def is_quiet() -> bool:  # A ping of slurmd counts as a change.
        nonlocal first
        first = await client.nodes()
        assert isinstance(first, NodeList)
        return isinstance(await client.nodes(first.last_update + 1), NotModified)

    await until(is_quiet)
    assert isinstance(first, NodeList)

    await client.drain("node02", "k8s: test")
    changed = await client.nodes(first.last_update)
    await client.undrain("node02")

    assert isinstance(changed, NodeList)
    assert {node.name: node.state_now.is_drain for node in changed.nodes} == {"node01": False, "node02": True}


async def test_an_unknown_node_is_none_and_changing_it_is_refused(client: SlurmClient) -> None:
    assert await client.node("nosuch") is None
    assert await client.node("odd name/[1-2]") is None
    with pytest.raises(SlurmRejectedError, match="drain node nosuch: HTTP") as refused:
        await client.drain("nosuch", "k8s: test")

    assert refused.value.number == INVALID_NODE_NAME


async def test_drain_and_undrain_may_be_repeated_and_the_reason_changes(client: SlurmClient) -> None:
    await client.drain("node02", "k8s: first")
    await client.drain("node02", "k8s: second")
    drained = await client.node("node02")
    await client.undrain("node02")
    await client.undrain("node02")
    undrained = await client.node("node02")

    assert drained is not None
    assert undrained is not None
    assert (drained.state_now.is_drained, drained.reason, drained.reason_set_by_user) == (
        True,
        "k8s: second",
        "root",
    )
    assert not undrained.state_now.is_drain


async def test_a_node_set_down_keeps_its_drain(client: SlurmClient) -> None:
    await client.drain("node02", "k8s: pod terminated")
    await client.set_down("node02", "k8s: pod terminated")
    node = await client.node("node02")
    await client.undrain("node02")

    assert node is not None
    assert (node.state_now.is_drain, node.reason) == (True, "k8s: pod terminated")


async def test_extra_changes_neither_state_nor_reason(client: SlurmClient) -> None:
    await client.drain("node02", "k8s: test")
    await client.set_extra("node02", '{"sunk": {"pod": "node02"}}')
    node = await client.node("node02")
    await client.undrain("node02")
    await client.set_extra("node02", "")

    assert node is not None
    assert (node.extra, node.reason) == ('{"sunk": {"pod": "node02"}}', "k8s: test")


async def test_a_static_node_is_not_deleted_and_an_unknown_one_is_gone(client: SlurmClient) -> None:
    await client.delete_node("nosuch")
    with pytest.raises(SlurmRejectedError):
        await client.delete_node("node01")


async def test_a_held_job_is_found_released_runs_and_is_cancelled(client: SlurmClient) -> None:
    job = await client.submit_job(
        replace(
            SLEEPER,
            hold=True,
            user_id="1",
            group_id="1",
            extra="mark",
            admin_comment="ours",
            shared=("user",),
            cpus_per_task=2,
            memory_per_node=Number.of(100),
            tres_per_node="gres/gpu:2",
            required_nodes=("node01",),
            time_limit=Number.of(5),
            kill_warning_signal="USR1",
            kill_warning_flags=("BATCH_JOB",),
            kill_warning_delay=Number.of(30),
        )
    )
    held = await client.job(job)
    await client.update_job(job, JobChange(hold=False))
    running = await until_job(
        client, job, lambda job: job.state_now.is_running and job.state_reason == "None"
    )
    await client.update_job(job, JobChange(extra="mark: started"))
    states = await client.job_states()
    marked = await client.job(job)
    await client.cancel_job(job)
    ended = await until_job(
        client, job, lambda job: job.state_now.is_over and not job.state_now.is_completing
    )
    await client.cancel_job(job)

    assert held is not None
    assert (held.state_now.is_pending, held.state_reason, held.user_id, held.extra, held.admin_comment) == (
        True,
        "JobHeldUser",
        1,
        "mark",
        "ours",
    )
    assert (held.shared, held.requeue) == (("user",), False)
    assert running.job_resources is not None
    assert [(held.name, held.cpus.count) for held in running.job_resources.nodes.allocation] == [
        ("node01", 2)
    ]
    assert (running.nodes, running.gpus, running.cpus.value) == ("node01", 2, 2)
    assert states[job].state.is_running
    assert marked is not None
    assert marked.extra == "mark: started"
    assert ended.state_now.base == "CANCELLED"


async def test_a_single_look_shows_a_node_idle_whose_job_is_over(client: SlurmClient) -> None:
    job = await client.submit_job(replace(SLEEPER, required_nodes=("node01",)))
    await until_node(client, "node01", lambda node: node.state_now.is_busy)
    await client.nodes()  # Counts anew: one of four CPUs is allocated.
    busy = await client.node("node01")
    await client.cancel_job(job)
    idle = await until_node(client, "node01", lambda node: not node.state_now.is_busy)

    assert busy is not None
    assert (busy.state_now.base, idle.state_now.base) == ("MIXED", "IDLE")


async def test_a_signal_reaches_the_script_and_leaves_the_job(client: SlurmClient) -> None:
    script = """#!/bin/bash
trap 'exit 7' USR1
scontrol update jobid=$SLURM_JOB_ID extra=ready
while :; do sleep 0.1; done
"""
    environment = (*SLEEPER.environment, "SLURM_CONF=/lab/etc/slurm.conf")
    job = await client.submit_job(replace(SLEEPER, script=script, environment=environment))
    await until_job(client, job, lambda job: job.extra == "ready")

    await client.cancel_job(job, signal="USR1", flags=("BATCH_JOB",))

    ended = await until_job(client, job, lambda job: job.state_now.is_over)
    assert (ended.state_now.base, ended.exit_code.number) == ("FAILED", 7)


async def test_a_pending_array_is_one_record_that_stands_for_its_tasks(
    client: SlurmClient, cluster: HostSlurm
) -> None:
    job = int(cluster.exec("sbatch", "--parsable", "--hold", "--array=1-5", "--wrap=true", "-D/").strip())
    cluster.exec("scontrol", "hold", f"{job}_3")  # Splits one task off.
    states = await client.job_states()
    record = await client.job(job)
    await client.cancel_job(job)

    tasks = {known: states[known].tasks for known in states if known >= job}
    assert sum(tasks.values()) == 5
    assert record is not None
    assert record.array_job_id.value == job


async def test_an_unknown_job_is_none_and_cancelling_it_is_success(client: SlurmClient) -> None:
    await client.cancel_job(987654)

    assert await client.job(987654) is None


async def test_a_job_that_slurm_refuses_is_rejected_with_its_words(client: SlurmClient) -> None:
    with pytest.raises(SlurmRejectedError, match=r"partition") as refused:
        await client.submit_job(replace(SLEEPER, partition="nosuch"))

    assert refused.value.number == 2000


async def test_partitions_and_statistics_are_read(client: SlurmClient) -> None:
    partitions = await client.partitions()
    diag = await client.diag()

    assert [(part.name, part.nodes.configured, part.partition.state) for part in partitions] == [
        ("main", "node[01-02]", ("UP",))
    ]
    assert any(rpc.count > 0 for rpc in diag.rpcs_by_message_type)


async def test_a_token_of_another_key_is_unavailable_and_not_shown(
    cluster: HostSlurm, tmp_path: Path
) -> None:
    other = tmp_path / "key"
    other.write_bytes(b"x" * 32)
    async with SlurmClient(cluster.url, KeyTokens(other)) as stranger:
        with pytest.raises(SlurmUnavailableError, match="does not accept the token") as refused:
            await stranger.partitions()

    assert "eyJ" not in repr(refused.value)


async def test_a_token_file_is_read_again_when_it_was_wrong_first(cluster: HostSlurm, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.e30.AAAA\n")
    async with SlurmClient(cluster.url, FileTokens(token)) as client:
        with pytest.raises(SlurmUnavailableError):
            await client.partitions()
        token.write_text(KeyTokens(cluster.jwt_key).current())

        assert await client.partitions()
