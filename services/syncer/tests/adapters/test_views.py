"""Slurm's side of a node as decisions want it."""

from datetime import UTC, datetime, timedelta
from itertools import count

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import PlacementState
from sunk_events.subjects import LEADER_KEY
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.testing import node
from sunk_slurm.wire import Number
from sunk_syncer.adapters.views import Views, fresh_inputs, published_inputs
from sunk_syncer.testing.stage import CLUSTER, node_views

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
TOLD = SlurmNodeState(changed=T0, node="n1", state="IDLE", flags=("DRAIN",), is_drain=True, reason="x")


def test_an_answer_without_a_state_is_not_a_node_without_a_drain() -> None:
    with pytest.raises(TransientError):
        fresh_inputs(replace(node("n1"), state=()))


def test_a_drains_age_is_counted_on_slurms_own_clock() -> None:
    told = replace(TOLD, reason_changed=T0 + timedelta(minutes=5))  # Slurm's clock is six minutes ahead.

    assert published_inputs(told, T0).reason_age_s == -300
    assert published_inputs(told, T0, clock_ahead_s=360).reason_age_s == 60


def test_while_the_clocks_were_not_compared_a_drain_is_too_young_for_anything() -> None:
    told = replace(TOLD, reason_changed=T0 - timedelta(hours=1))

    assert published_inputs(told, T0, clock_ahead_s=None).reason_age_s < -1e9
    assert fresh_inputs(node("n1", "IDLE", "DRAIN"), clock_ahead_s=None).reason_age_s < -1e9


def test_a_drain_of_unknown_age_is_of_no_age_at_all() -> None:
    assert published_inputs(TOLD, T0).reason_age_s == float("inf")
    assert fresh_inputs(node("n1", "IDLE", "DRAIN")).reason_age_s == float("inf")
    times = [Number.of(-1), Number.of(1e30), Number.of(None)]
    assert [
        fresh_inputs(replace(node("n1", "IDLE", "DRAIN"), reason_changed_at=time)).reason_age_s > 0
        for time in times
    ] == [True] * 3


def test_names_with_dots_reasons_of_any_alphabet_and_words_of_a_newer_slurm_are_taken_as_they_are() -> None:
    seen = replace(node("n1.rack-7.example", "IDLE", "DRAIN", "SPARKLING"), reason="k8s: диск 💥")
    side = fresh_inputs(seen)

    assert (side.node, side.reason, side.state.is_drained) == ("n1.rack-7.example", "k8s: диск 💥", True)


async def kube_falls_silent(views: Views, writer: StateWriter[KubeWatchState]) -> None:
    """Nobody who never said that he sees Kubernetes is missed; who has said so once, and again, is."""
    state, turns = KubeWatchState(changed=T0, seen=T0), count()

    async def is_heard() -> bool:
        """Say so: what was said a pause of this machine ago may be too old to be seen as new."""
        seen = replace(state, seen=T0 + timedelta(seconds=next(turns)))
        await writer.record(LEADER_KEY, seen, revision=writer.view.revision(LEADER_KEY))
        return not is_held_back(views)

    await anyio.sleep(0.4)
    views.require_known("n1")
    for _ in range(2):
        await until(is_heard)
        await until(lambda: is_held_back(views))
    await writer.forget(LEADER_KEY, revision=writer.view.revision(LEADER_KEY))
    views.require_known("n1")


@pytest.mark.anyio
async def test_a_new_leader_does_not_trust_what_an_old_sign_of_life_vouches_for(nats: NatsServer) -> None:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        kube = StateView(bus, CLUSTER, KubeWatchState)
        async with following(kube):
            await kube.complete()
            state = KubeWatchState(changed=T0, seen=T0)
            await StateWriter(bus, kube, fence=None).record(LEADER_KEY, state, revision=0)
        await anyio.sleep(0.6)
        views = node_views(bus, CLUSTER, kube_silent_max_s=0.5)
        async with following(*views.parts()):
            await views.complete()
            was_held_back = is_held_back(views)
            await bus.js.delete_stream(f"KV_{kube.bucket}")
            await until(lambda: views.kube.is_untouched)

            assert was_held_back
            assert is_held_back(views)  # Who has lost that too has not heard of anybody.


def is_held_back(views: Views) -> bool:
    try:
        views.require_known("n1")
    except TransientError as error:
        assert "no message from the nodeset-controller" in str(error)  # noqa: PT017 - it may also be known
        return True
    return False


@pytest.mark.anyio
async def test_nothing_is_decided_on_jobs_that_went_with_their_bucket_before_they_are_told_anew(
    nats: NatsServer,
) -> None:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        views = node_views(bus, CLUSTER)
        jobs, told = (
            StateWriter(bus, views.jobs, fence=None),
            SlurmJobState(changed=T0, job=7, state="RUNNING"),
        )
        async with following(*views.parts()):
            await views.complete()
            await jobs.record("7", told, revision=0)
            views.require_known("n1")

            await bus.js.delete_stream(f"KV_{views.jobs.bucket}")
            await until(lambda: views.jobs.is_complete and views.jobs.is_doubtful("7"))
            for require in (views.require_complete, lambda: views.require_known("n1")):
                with pytest.raises(TransientError, match="lost its latest messages"):
                    require()
            await jobs.record("7", told, revision=0)

            views.require_complete()
            views.require_known("n1")


class AgedPods(StateView[KubePodState]):
    """A view whose server was not heard of for as long as the test says."""

    pretended_s = 0.0

    @property
    def age_s(self) -> float:
        return self.pretended_s


@pytest.mark.anyio
async def test_nothing_is_decided_on_what_was_not_heard_of_for_longer_than_its_bound(
    nats: NatsServer,
) -> None:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        pods = AgedPods(bus, CLUSTER, KubePodState)
        nodes = StateView(bus, CLUSTER, SlurmNodeState)
        jobs = StateView(bus, CLUSTER, SlurmJobState)
        placements = StateView(bus, CLUSTER, PlacementState)
        locks = StateView(bus, CLUSTER, LockState)
        kube = StateView(bus, CLUSTER, KubeWatchState)
        views = Views(
            nodes=nodes,
            jobs=jobs,
            pods=pods,
            placements=placements,
            locks=locks,
            kube=kube,
            age_max_s=30,
            kube_silent_max_s=0.3,
            bucket_doubt_s=0,
        )
        with pytest.raises(TransientError):
            views.require_known("n1")  # None is complete.
        async with following(nodes, jobs, pods, placements, locks, kube):
            await views.complete()
            await kube_falls_silent(views, StateWriter(bus, kube, fence=None))
            pods.pretended_s = 30.1

            with pytest.raises(TransientError, match=r"no message about state .* for 30 s"):
                views.require_known("n1")
