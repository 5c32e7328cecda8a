"""What only the model of Slurm can: its faults, and the checkers that look at it."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from sunk_events import subjects
from sunk_events.codec import encode
from sunk_events.nodes import NodeDrained, NodeRegistered, NodeRemoved, NodeSnapshot, SlurmNodeState
from sunk_runtime.errors import SunkError
from sunk_runtime.fencing import FENCE_HEADER
from sunk_runtime.jetstream import BusSettings, connect
from sunk_simulation.bus import headers
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.bus.stream import Stream
from sunk_simulation.checks import BusChecks, SlurmChecks, facts_without_state
from sunk_simulation.simulation import BreachError, Simulation
from sunk_simulation.slurm.conf import SlurmConf
from sunk_simulation.slurm.model import PORT, ModelSlurm
from sunk_simulation.slurm.slurmd import NodeConf
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.reads import NodeList, NotModified
from sunk_slurm.submission import JobDescription

SLEEPER = JobDescription(
    script="#!/bin/bash\nsleep 600\n", environment=("PATH=/bin",), current_working_directory="/"
)


class Token:
    def current(self) -> str:
        return "anybody's"

    def renew(self) -> None:
        """It is the only one."""


def run(story: Callable[[ModelSlurm, SlurmClient], Awaitable[None]], conf: SlurmConf | None = None) -> None:
    """Run *story* with a Slurm of two nodes, and the checkers."""
    with Simulation() as sim:
        nodes = [NodeConf("n1"), NodeConf("n2")]
        slurm = ModelSlurm(sim.loop, sim.trace, sim.random("slurm"), conf or SlurmConf(), nodes)
        slurm.changed = sim.changed
        checks = SlurmChecks(slurm)
        sim.never("a service touches what is another's", checks.drain_of_another_is_changed)
        slurm.start()

        async def whole() -> None:
            await anyio.sleep(1)
            async with SlurmClient(f"http://slurmrestd:{PORT}", Token()) as client:
                await story(slurm, client)

        sim.run(whole())


async def listed(client: SlurmClient) -> list[str]:
    answer = await client.nodes()
    assert isinstance(answer, NodeList)
    return [node.name for node in answer.nodes]


def test_an_answer_that_is_lost_took_effect() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        slurm.restd.lose_answers()
        with pytest.raises(SlurmUnavailableError):
            await client.submit_job(SLEEPER)

        assert list(slurm.state.jobs) == [1]

    run(story)


def test_lists_may_be_cut_empty_and_old_and_then_are_whole() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        slurm.restd.cut_lists()
        assert await listed(client) == ["n1"]
        slurm.restd.empty_lists()
        assert await listed(client) == []
        assert await listed(client) == ["n1", "n2"]
        slurm.restd.be_stale(30)
        await client.drain("n1", "k8s: cordon")
        old = await client.nodes()
        await anyio.sleep(30)
        new = await client.nodes()

        assert not isinstance(old, NotModified)
        assert not isinstance(new, NotModified)
        assert [node.state_now.is_drain for node in (old.nodes[0], new.nodes[0])] == [False, True]

    run(story)


def test_a_slurmctld_that_was_killed_has_lost_what_it_had_not_saved_and_nothing_else() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        await client.drain("n1", "early")
        await anyio.sleep(6)
        await client.drain("n2", "late")
        slurm.kill_ctld()
        with pytest.raises(SunkError):
            await client.drain("n2", "nobody hears")
        slurm.start_ctld()

        assert [slurm.state.nodes[name].reason for name in ("n1", "n2")] == ["early", ""]

    run(story)


def test_a_slurmctld_that_has_lost_its_jobs_ends_their_scripts_and_counts_from_one() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        assert [await client.submit_job(SLEEPER), await client.submit_job(SLEEPER)] == [1, 2]
        await anyio.sleep(5)
        assert sum(len(slurmd.steps) for slurmd in slurm.slurmds.values()) == 2
        slurm.lose_jobs()
        slurm.start_ctld()
        await anyio.sleep(10)

        assert [slurmd.steps for slurmd in slurm.slurmds.values()] == [{}, {}]
        assert await client.submit_job(SLEEPER) == 1

    run(story)


def test_a_node_whose_machine_is_gone_is_down_in_time_and_its_job_waits_again() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        job = await client.submit_job(SLEEPER)
        await anyio.sleep(5)
        (node,) = slurm.state.jobs[job].nodes
        slurm.slurmds[node].fail()
        await anyio.sleep(20)
        assert "NOT_RESPONDING" in slurm.state.nodes[node].flags
        await anyio.sleep(40)

        assert slurm.state.nodes[node].base == "DOWN"
        assert (slurm.state.jobs[job].base, slurm.state.jobs[job].restart_cnt) == ("PENDING", 1)

    run(story)


def test_accounting_remembers_a_job_that_slurmctld_has_lost_and_its_numbers_twice() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        await client.submit_job(SLEEPER)
        await anyio.sleep(5)
        slurm.lose_jobs()
        slurm.start_ctld()
        await client.submit_job(SLEEPER)

        assert [job.job_id for job in slurm.accounting.values()] == [1, 1]

    run(story, SlurmConf(has_accounting=True))


@pytest.mark.parametrize("after_s", [1, 200])
def test_a_service_that_lifts_a_drain_by_hand_is_found_and_one_that_lifts_its_own_is_not(
    after_s: int,
) -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        await client.drain("n2", "k8s: cordon")
        slurm.exec("scontrol", "update", "node=n1", "state=drain", "reason=bad dimm")
        await anyio.sleep(after_s)
        await client.undrain("n2")
        await client.undrain("n1")

    with pytest.raises(BreachError, match="n1 was drained by hand for 'bad dimm'"):
        run(story)


@pytest.mark.parametrize("who", ["a service", "a person"])
def test_a_service_that_deletes_a_record_with_a_drain_by_hand_is_found_and_a_person_is_not(who: str) -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        slurm.add_node(NodeConf("n9", is_dynamic=True))
        await anyio.sleep(10)
        slurm.exec("scontrol", "update", "node=n9", "state=drain", "reason=bad dimm")
        await anyio.sleep(200)
        if who == "a person":
            slurm.exec("scontrol", "delete", "nodename=n9")
        await client.delete_node("n9")

        assert "n9" not in slurm.state.nodes

    found = pytest.raises(BreachError, match="slurm deleted its record")
    with found if who == "a service" else nullcontext():
        run(story)


def test_a_write_that_a_drain_by_hand_has_met_on_its_way_is_nobodys_fault() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        await client.drain("n1", "k8s: cordon")
        slurm.exec("scontrol", "update", "node=n1", "state=drain", "reason=bad dimm")
        await client.undrain("n1")
        slurm.exec("scontrol", "update", "node=n2", "state=drain", "reason=bad dimm")
        await client.drain("n2", "k8s: cordon")

        assert slurm.state.nodes["n2"].reason == "k8s: cordon"

    run(story)


def test_a_service_that_cancels_anothers_job_is_found_and_its_user_is_not() -> None:
    async def story(slurm: ModelSlurm, client: SlurmClient) -> None:
        jobs = [await client.submit_job(SLEEPER) for _ in range(2)]
        slurm.exec("scancel", str(jobs[0]))
        await client.cancel_job(jobs[1])

    with pytest.raises(BreachError, match="did cancel job 2"):
        run(story)


def test_a_leader_that_writes_upon_what_a_later_one_wrote_is_found() -> None:
    settings = BusSettings(url="nats://nats:4222")
    subject = subjects.key_subject(subjects.bucket("c1", SlurmNodeState), "n1")

    class Leader:
        def __init__(self, token: int) -> None:
            self.token = token

        def check(self) -> None:
            """It believes so."""

    with Simulation() as sim:
        nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        nats.changed = sim.changed
        sim.never("an older leader writes upon a later one", BusChecks(nats).older_leader_writes)
        nats.start()

        async def story() -> None:
            async with connect(settings, "test") as bus:
                await bus.provision("c1", settings)
                for token in (1, 2, 1):
                    await bus.publish(subject, b"{}", fence=Leader(token))

        with pytest.raises(BreachError, match="was written with token 1 after a later one"):
            sim.run(story())


def test_leaders_of_one_bucket_are_known_though_another_bucket_is_made_anew() -> None:
    streams = {
        name: Stream({"name": name, "subjects": [f"{name}.>"]}, 0) for name in ("KV_nodes", "KV_leases")
    }
    checks = BusChecks(cast("ModelNats", SimpleNamespace(store=SimpleNamespace(streams=streams))))

    def write(name: str, token: int) -> str | None:
        streams[name].store(f"{name}.key", headers.render({FENCE_HEADER: str(token)}), b"", 1)
        return checks.older_leader_writes()

    assert [write("KV_nodes", 2), write("KV_leases", 2), write("KV_leases", 2)] == [None, None, None]
    streams["KV_leases"] = Stream({"name": "KV_leases", "subjects": ["KV_leases.>"]}, 0)

    assert write("KV_leases", 1) is None
    assert write("KV_nodes", 1) == "KV_nodes.key was written with token 1 after a later one"


def test_a_drain_ends_with_its_nodes_record() -> None:
    moment, facts = datetime(2026, 1, 1, tzinfo=UTC), subjects.fact_stream("c1")
    bucket = subjects.bucket_stream(subjects.bucket("c1", SlurmNodeState))
    streams = {name: Stream({"name": name, "subjects": [f"{name}.>"]}, 0) for name in (facts, bucket)}
    nats = cast("ModelNats", SimpleNamespace(store=SimpleNamespace(streams=streams)))
    state = SlurmNodeState(changed=moment, node="n1", state="IDLE")
    streams[bucket].store(f"{bucket}.n1", b"", encode(state), 1)

    def tell(kind: type[NodeDrained | NodeRegistered | NodeRemoved]) -> str | None:
        fact = kind(
            id=kind.__name__,
            source="/c1/syncer",
            subject="n1",
            time=moment,
            data=NodeSnapshot(node="n1", state="IDLE"),
        )
        streams[facts].store(f"{facts}.n1", b"", encode(fact), 1)
        return facts_without_state(nats, "c1")

    assert tell(NodeDrained) == "the last fact of n1 says drained=True, its state False"
    assert [tell(NodeRemoved), tell(NodeRegistered)] == [None, None]
