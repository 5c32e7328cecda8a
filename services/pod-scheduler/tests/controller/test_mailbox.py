"""What callers asked for is of one life of a job's number: slurmctld that lost its state gives it anew."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Views
from sunk_pod_scheduler.controller.mailbox import Announcement, Mailbox
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.reconciler import Reconciler
from sunk_pod_scheduler.gang_controller.snapshotter import GangSnapshotter
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.transitions import is_another
from sunk_pod_scheduler.podspec.validation import Rules
from sunk_pod_scheduler.testing.builders import JOB, KEY, SLURM_NODE, T0, UID, job, placement
from sunk_pod_scheduler.testing.memory_pods import MemoryPods
from sunk_runtime.changes import Changes
from sunk_runtime.recovery import Recovery

pytestmark = pytest.mark.anyio


class _Nothing:
    """A view of nothing."""

    def get(self, key: str) -> None:
        assert key

    def values(self) -> list[object]:
        return []

    def changes(self) -> Changes:
        return Changes(())

    def require_complete(self) -> None:
        """Return: all is known."""


def test_an_epilog_that_asks_for_a_job_that_waits_or_runs_is_of_an_earlier_job_of_its_number() -> None:
    mailbox = Mailbox()
    mailbox.request_release(UID, JOB, is_epilog=True)

    assert not mailbox.is_release_requested(UID, JOB, is_alive=True)
    assert mailbox.is_release_requested(UID, JOB)  # Slurm has ended it, or does not know it, or does not say.
    assert not mailbox.is_release_requested(UID, JOB + 1)

    mailbox.request_release(UID, JOB)  # Its script says so, with the token of this very attempt.
    mailbox.request_release(UID, JOB, is_epilog=True)
    assert mailbox.is_release_requested(UID, JOB, is_alive=True)


def test_what_was_said_of_a_lost_job_is_not_said_of_the_next_that_has_the_same_number() -> None:
    before = placement("bound", node=SLURM_NODE)
    again = replace(before, phase="submitted", attempt=1)

    assert is_another(before, again)
    assert is_another(before, None)
    assert not is_another(before, replace(before, phase="ending"))
    assert not is_another(None, before)
    mailbox = Mailbox()
    mailbox.request_release(UID, JOB)
    mailbox.announce(UID, Announcement(JOB, SLURM_NODE))
    mailbox.note_heartbeat(UID, JOB, "cut")
    mailbox.forget(UID)
    assert (
        mailbox.announced_on(UID, JOB),
        mailbox.heartbeat(UID, JOB),
        mailbox.is_release_requested(UID, JOB),
    ) == (
        "",
        "",
        False,
    )


def test_a_job_that_slurm_ends_is_not_alive_any_more() -> None:
    assert [job(base).is_alive for base in ("PENDING", "RUNNING", "SUSPENDED", "CANCELLED")] == [
        True,
        True,
        True,
        False,
    ]
    assert not job("PENDING", is_completing=True).is_alive  # It was requeued, and its epilog runs.


async def test_a_script_is_unheard_only_since_somebody_hears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = T0 + timedelta(minutes=5)
    moments = iter((T0, later))
    monkeypatch.setattr("sunk_pod_scheduler.controller.mailbox.now", lambda: next(moments))
    mailbox, bus, nothing = Mailbox(), Recovery(), _Nothing()
    idle: Any = nothing
    views: Any = Views(kube_pods=nothing, slurm_nodes=nothing, locks=NodeLocks(idle))  # type: ignore[arg-type]
    parts: Any = {"pods": MemoryPods(), "views": views, "placements": nothing, "jobs": nothing}
    bus_jobs = BusJobs(idle, idle)
    parts["takers"] = NodeTakers(bus_jobs, idle, idle)
    scheduler = Reconciler(
        mailbox=mailbox, rules=Rules(), limits=Limits(), key=KEY, executor=idle, bus_jobs=bus_jobs, **parts
    )
    snapshotter = GangSnapshotter(mailbox=mailbox, rules=Rules(), key=KEY, workloads=nothing, **parts)  # type: ignore[arg-type]

    async def listening() -> set[datetime | None]:
        return {(await scheduler.look(UID)).listening, (await snapshotter.look("gang-1"))[0].listening}

    assert await listening() == {T0}
    with bus.waking(mailbox.restart_listening):
        bus.announce()
    assert await listening() == {later}
