"""Locks on a real bus: who waits for one is woken by its next change, and nothing else wakes him."""

from functools import partial
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from sunk_events import subjects
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube.testing import node
from sunk_lab.nats import NatsServer
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Context, Views
from sunk_pod_scheduler.controller.executor import Executor
from sunk_pod_scheduler.controller.mailbox import Announcement, Mailbox
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.reconciler import Reconciler
from sunk_pod_scheduler.placement import pending_jobs
from sunk_pod_scheduler.placement.events import EventSource
from sunk_pod_scheduler.placement.job_description import Placeholder
from sunk_pod_scheduler.placement.kubelet_rejections import KubeletRejections
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen
from sunk_pod_scheduler.podspec.validation import Rules
from sunk_pod_scheduler.testing.builders import (
    JOB,
    KEY,
    KUBE_NODE,
    SLURM_NODE,
    T0,
    UID,
    job,
    lock,
    manifest,
    placement,
)
from sunk_pod_scheduler.testing.memory_pods import MemoryPods
from sunk_runtime.jetstream import Bus
from sunk_runtime.keys import KeyLoop
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

RUNS = replace(job(reason="JobHeldUser", nodes=("n1", "n2")), started=T0)
"""As after a hold in its prolog: Slurm starts its script although a prolog waits for its lock."""


async def write(bus: Bus, view: StateView[LockState], state: LockState) -> None:
    await StateWriter(bus, view, fence=None).record(state.node, state, revision=view.revision(state.node))


async def test_who_waits_for_a_lock_is_woken_by_its_change_and_locks_that_are_not_read_are_not_known(
    bus: Bus,
) -> None:
    view = StateView(bus, "c1", LockState)
    locks, woken = NodeLocks(view), list[str]()

    async def listen() -> None:
        async for uid in locks.woken():
            woken.append(uid)

    assert locks.ungranted("u1", RUNS, has_begun=True) is None
    assert (
        locks.ungranted("u1", JobGone(), has_begun=True)
        == locks.ungranted("u1", job("PENDING"), has_begun=True)
        == ()
    )
    async with following(view), anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await view.complete()
        assert locks.ungranted("u1", RUNS, has_begun=True) == ()  # Nobody locks its nodes.

        await write(bus, view, lock("n1", "locked_strict", granted=T0))
        await write(bus, view, lock("n2"))
        await write(bus, view, lock("n9"))
        assert locks.ungranted("u1", RUNS, has_begun=True) == (view.get("n2"),)
        assert locks.ungranted("u2", RUNS, has_begun=True) == (view.get("n2"),)
        assert locks.ungranted("u3", RUNS, has_begun=False) == (
            view.get("n2"),
        )  # Its script has yet to begin.
        await write(bus, view, lock("n9", "locked_strict", granted=T0))
        await write(bus, view, lock("n2", "locked_strict", granted=T0))

        await until(lambda: sorted(woken) == ["u1", "u2"])
        assert locks.ungranted("u1", RUNS, has_begun=True) == ()
        await write(bus, view, lock("n2"))
        await StateWriter(bus, view, fence=None).forget("n2", revision=view.revision("n2"))
        assert locks.ungranted("u1", RUNS, has_begun=True) == ()
        tasks.cancel_scope.cancel()
    assert sorted(woken) == ["u1", "u2"]


async def test_a_lock_of_a_newer_version_that_cannot_be_read_is_not_known(
    bus: Bus, server: NatsServer
) -> None:
    view = StateView(bus, "c1", LockState)
    assert server.url
    async with following(view):
        await view.complete()
        await bus.publish(subjects.key_subject(view.bucket, "n2"), b"{}")
        await until(lambda: bool(view.undecodable))

        assert NodeLocks(view).ungranted("u1", RUNS, has_begun=True) is None


class Slurm:
    """One job that runs; its user can write what he likes into its Extra."""

    def __init__(self, found: JobSeen) -> None:
        self.found = found

    async def look(self, number: int, _owner: object) -> AnyJob:
        assert number == self.found.job
        return self.found

    async def mark_started(self, *_: object) -> None:
        self.found = replace(self.found, is_marked_started=True)


@pytest.mark.parametrize("is_announced", [True, False], ids=["announced", "called started by its user"])
async def test_a_pod_is_bound_when_the_lock_of_its_node_is_granted_and_not_before(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, *, is_announced: bool
) -> None:
    monkeypatch.setattr(pending_jobs, "LOOK_AGAIN_S", 3600.0)  # Nothing but the lock wakes it.
    placements, slurm_jobs = StateView(bus, "c1", PlacementState), StateView(bus, "c1", SlurmJobState)
    statistics, view = StateView(bus, "c1", SlurmStatisticsState), StateView(bus, "c1", LockState)
    kube_pods, slurm_nodes = StateView(bus, "c1", KubePodState), StateView(bus, "c1", SlurmNodeState)
    views = Views(kube_pods=kube_pods, slurm_nodes=slurm_nodes, locks=NodeLocks(view))
    pods, mailbox = MemoryPods(manifest(), nodes=(node(KUBE_NODE),)), Mailbox()
    slurm: Any = Slurm(replace(job(is_marked_started=not is_announced), started=T0))
    writer, bus_jobs = StateWriter(bus, placements, fence=None), BusJobs(slurm_jobs, statistics)
    context = Context(
        event_source=EventSource("c1", "pod-scheduler"),
        pods=pods,
        jobs=slurm,
        placements=writer,
        views=views,
        rules=Rules(),
        placeholder=Placeholder(script="", hooks_url="", key=KEY),
        refusals=KubeletRejections(),
        check=lambda: None,
    )
    scheduler = Reconciler(
        pods=pods,
        jobs=slurm,
        placements=placements,
        bus_jobs=bus_jobs,
        takers=NodeTakers(bus_jobs, slurm, slurm_nodes),
        views=views,
        mailbox=mailbox,
        executor=Executor(context),
        rules=Rules(),
        limits=Limits(),
        key=KEY,
    )
    if is_announced:
        mailbox.announce(UID, Announcement(JOB, SLURM_NODE))
    loop = KeyLoop("pods", scheduler.reconcile)
    async with (
        following(placements, slurm_jobs, statistics, *views.followed),
        anyio.create_task_group() as tasks,
    ):
        for one in (placements, slurm_jobs, statistics, *views.followed):
            await one.complete()
        slurmd = KubePodState(
            changed=T0, pod=SLURM_NODE, nodeset="set", namespace="slurm", kube_node=KUBE_NODE, phase="running"
        )
        await StateWriter(bus, kube_pods, fence=None).record(SLURM_NODE, slurmd, revision=0)
        await write(bus, view, lock())
        await writer.record(UID, placement("released"), revision=0)
        tasks.start_soon(partial(loop.run, views.locks.woken()))
        loop.enqueue(UID)
        await until(lambda: pods.last_reasons.get(UID) == "WaitingForLock")
        told = placements.get(UID)
        assert told is not None
        assert (told.phase, pods.pods[UID].spec.node_name) == ("released", "")

        await write(bus, view, lock(value="locked_strict", granted=T0))
        await until(lambda: (state := placements.get(UID)) is not None and state.phase == "bound")

        assert pods.pods[UID].spec.node_name == KUBE_NODE
        tasks.cancel_scope.cancel()
