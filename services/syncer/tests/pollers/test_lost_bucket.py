"""What the syncer knows of nodes and jobs does not wait for a change in Slurm when the bus lost it."""

from datetime import UTC, datetime

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_lab.nats import NatsServer
from sunk_runtime.clock import now
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.reads import KnownJob
from sunk_slurm.states import JobState
from sunk_slurm.testing import job as one_job
from sunk_slurm.testing import node
from sunk_slurm.wire import Job
from sunk_syncer.adapters.views import Views, fresh_inputs
from sunk_syncer.config import Config
from sunk_syncer.policy.drains import OVERDUE, decide
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.pollers.poll_loop import PollSchedule
from sunk_syncer.testing.quiet_slurm import QuietSlurm
from sunk_syncer.testing.stage import node_views, ready_pod

pytestmark = pytest.mark.anyio

CONFIG = Config(cluster="c1", resync_s=3600)
QUIET = Config(cluster="c1", poll_s=3600, job_refresh_s=3600)
"""Neither a list nor a job's turn comes round."""


async def test_a_bucket_of_nodes_that_was_removed_is_filled_again_though_nothing_changed_in_slurm(
    nats: NatsServer,
) -> None:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view = StateView(bus, "c1", SlurmNodeState)
        activity = ActivityPoller(QuietSlurm(), PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = NodePoller(QuietSlurm(), StateWriter(bus, view, fence=None), activity, CONFIG)
        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: sorted(view.keys()) == ["n1", "n2"])
            await bus.js.delete_stream(f"KV_{view.bucket}")

            async with following(fresh := StateView(bus, "c1", SlurmNodeState)):
                await until(lambda: sorted(fresh.keys()) == ["n1", "n2"])
            tasks.cancel_scope.cancel()


async def test_what_an_earlier_leader_has_written_late_is_written_anew(nats: NatsServer) -> None:
    settings, slurm = BusSettings(url=nats.url), QuietSlurm()
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view, earlier = StateView(bus, "c1", SlurmNodeState), StateView(bus, "c1", SlurmNodeState)
        activity = ActivityPoller(slurm, PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = NodePoller(slurm, StateWriter(bus, view, fence=None), activity, CONFIG)
        async with following(view, earlier), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: sorted(earlier.keys()) == ["n1", "n2"])
            told = earlier.entry("n1")
            assert told is not None
            late = replace(told.value, reason="by hand")
            await StateWriter(bus, earlier, fence=None).record("n1", late, revision=told.revision)

            await until(lambda: (state := earlier.get("n1")) is not None and state.reason == "")
            tasks.cancel_scope.cancel()


async def test_a_bucket_of_jobs_that_was_removed_is_filled_again_though_nothing_changed_in_slurm(
    nats: NatsServer,
) -> None:
    settings, slurm = BusSettings(url=nats.url), QuietSlurm()
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view = StateView(bus, "c1", SlurmJobState)
        activity = ActivityPoller(slurm, PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = JobPoller(slurm, StateWriter(bus, view, fence=None), activity, QUIET)
        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            await activity.poll()
            tasks.start_soon(watch.run)
            await until(lambda: sorted(view.keys()) == ["7", "8"])
            looks = slurm.jobs_looked_at
            await bus.js.delete_stream(f"KV_{view.bucket}")

            async with following(fresh := StateView(bus, "c1", SlurmJobState)):
                await until(lambda: sorted(fresh.keys()) == ["7", "8"])
            assert (looks, slurm.jobs_looked_at) == (2, 4)
            tasks.cancel_scope.cancel()


class Slurm(QuietSlurm):
    """Jobs in the states that the test gives them."""

    def __init__(self, **states: str) -> None:
        super().__init__()
        self.states = states

    async def job_states(self) -> dict[int, KnownJob]:
        return {int(job[1:]): KnownJob(JobState.of((state,))) for job, state in self.states.items()}

    async def job(self, job: int) -> Job | None:
        state = self.states.get(f"j{job}")
        return one_job(job, state) if state else None


async def test_a_bucket_of_jobs_that_went_back_is_told_anew_though_nothing_changed_in_slurm(
    nats: NatsServer,
) -> None:
    settings, slurm = BusSettings(url=nats.url), Slurm(j1="RUNNING", j2="PENDING", j3="RUNNING")
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view, readers = (StateView(bus, "c1", SlurmJobState) for _ in "ab")
        activity = ActivityPoller(slurm, PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = JobPoller(slurm, StateWriter(bus, view, fence=None), activity, QUIET)
        async with following(view, readers), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)

            def is_told() -> bool:
                shown = {f"j{state.job}": state.state for state in readers.values()}
                return readers.is_complete and shown == slurm.states

            await until(is_told)
            nats.keep_store()
            await until(lambda: bus.reconnects == 1 and view.is_complete)
            slurm.states = {"j1": "COMPLETED", "j2": "RUNNING", "j3": "RUNNING", "j4": "PENDING"}
            await watch.poll()
            await until(is_told)

            nats.put_store_back()
            await until(lambda: bus.reconnects == 2)
            await until(lambda: not readers.is_complete)

            await until(is_told)
            tasks.cancel_scope.cancel()


async def test_a_job_that_went_with_its_bucket_and_that_slurm_has_no_more_is_told_to_be_gone(
    nats: NatsServer,
) -> None:
    settings, slurm = BusSettings(url=nats.url), Slurm(j1="RUNNING")
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view, readers = (StateView(bus, "c1", SlurmJobState) for _ in "ab")
        activity = ActivityPoller(slurm, PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = JobPoller(slurm, StateWriter(bus, view, fence=None), activity, QUIET)
        async with following(view, readers), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: readers.is_complete and readers.keys() == ["1"])
            nats.keep_store()
            await until(lambda: bus.reconnects == 1 and view.is_complete)
            slurm.states = {"j1": "RUNNING", "j2": "RUNNING"}
            await watch.poll()
            await until(lambda: readers.is_complete and len(readers) == 2)

            slurm.states = {"j1": "RUNNING"}
            nats.put_store_back()
            await until(lambda: bus.reconnects == 2 and view.is_doubtful("2"))
            await until(lambda: not readers.is_complete)

            async def is_told_by_lists() -> bool:
                await watch.poll()
                return readers.is_complete and readers.keys() == ["1"]

            await until(is_told_by_lists)
            tasks.cancel_scope.cancel()


async def test_a_lost_bucket_of_placements_lifts_no_drain_before_its_owner_has_written_for_a_while(
    nats: NatsServer,
) -> None:
    settings, drained = BusSettings(url=nats.url), fresh_inputs(node("n1", "IDLE", "DRAIN", reason=OVERDUE))
    over = PlacementState(
        changed=datetime.now(UTC),
        uid="u1",
        namespace="ns",
        pod="p",
        phase="ending",
        job=7,
        node="n1",
        is_overdue=True,
    )
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        patient, hasty = node_views(bus, "c1", bucket_doubt_s=3600), node_views(bus, "c1", bucket_doubt_s=0)
        both = patient.placements, hasty.placements
        owner = StateWriter(bus, StateView(bus, "c1", PlacementState), fence=None)

        def lifts(views: Views) -> bool:
            return decide(drained, views.kube_inputs("n1", now()), prehook_pause_s=0) != ()

        def is_lost() -> bool:
            return owner.view.is_complete and not any(view.keys() for view in (*both, owner.view))

        async with following(*patient.parts(), *hasty.parts(), owner.view):
            await hasty.pods.complete()
            await StateWriter(bus, hasty.pods, fence=None).record("n1", ready_pod("n1"), revision=0)
            await owner.view.complete()
            await owner.record("u1", over, revision=0)
            await until(lambda: all(view.get("u1") for view in both))
            for views in (patient, hasty):
                await views.complete()
            assert not lifts(hasty)

            await bus.js.delete_stream(f"KV_{owner.view.bucket}")
            await until(is_lost)
            assert not lifts(hasty)

            await owner.record("u2", replace(over, uid="u2", node="n2"), revision=0)
            await until(lambda: all(view.get("u2") for view in both))
            assert not lifts(patient)  # Others are on their way.
            assert lifts(hasty)
