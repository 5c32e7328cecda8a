"""What squeue and scontrol show of a job that waits for the lock of its node, in a real Slurm."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from sunk_events.locks import LockHolder, LockState
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.roots import INSTANCE
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.testing import until
from sunk_syncer.testing.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

NODE, OTHER = "node01", "node02"
END = datetime(2099, 1, 1, 14, 5, 10, tzinfo=UTC)
SAID = "sunk: waits: 3 Pods have to leave node node01, the last by 14:05:10 UTC"
PROLOG = f"#!/bin/bash\nwhile [ -e {INSTANCE}/etc/waits.$SLURM_JOB_ID ]; do sleep 0.1; done\nexit 0\n"


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    more = (f"Prolog={INSTANCE}/etc/prolog",)
    with running_slurm(request.param, nodes=NodeRange(count=2, first_port=0), more=more) as slurm:
        slurm.write_file("prolog", PROLOG)
        yield slurm


async def in_prolog(stage: Stage) -> str:
    """Return a job whose prolog waits, as for a lock."""
    words = ("--hold", "-n1", "--mem=10", "-w", NODE, "--requeue", "-D/", "-o/dev/null", "--wrap=sleep 300")
    job = stage.slurm.exec("sbatch", "--parsable", *words).strip()
    stage.slurm.exec("touch", f"{INSTANCE}/etc/waits.{job}")
    stage.slurm.exec("scontrol", "release", job)
    await until(lambda: (state := stage.jobs.get(job)) is not None and state.reason == "Prolog")
    return job


def goes_on(stage: Stage, job: str) -> None:
    """Have its prolog end."""
    stage.slurm.exec("rm", "-f", f"{INSTANCE}/etc/waits.{job}")


def lock(*jobs: str, node: str = NODE, leaving: int = 3) -> LockState:
    """Return a lock that the jobs wait for; with none *leaving* it is granted."""
    granted = None if leaving else datetime.now(UTC)
    return LockState(
        changed=datetime.now(UTC),
        node=node,
        kube_node=f"k-{node}",
        lock="pending" if leaving else "locked",
        holders=tuple(LockHolder(job=int(job), level="normal", granted=granted) for job in jobs),
        in_the_way=("secret/web",) if leaving else (),
        leaving=leaving,
        leaving_until=END if leaving else None,
    )


def comment(stage: Stage, job: str) -> str:
    """What scontrol shows."""
    found = re.search(r"AdminComment=(.*)", stage.slurm.exec("scontrol", "show", "job", job))
    return found[1].strip() if found else ""


def set_comment(stage: Stage, job: str, text: str) -> None:
    """Write as an administrator, or as a prolog."""
    stage.slurm.exec("scontrol", "update", f"jobid={job}", f"admincomment={text}")


async def test_a_job_that_waits_says_so_until_its_lock_is_granted(stage: Stage) -> None:
    job = await in_prolog(stage)

    await stage.lock(lock(job))
    await until(lambda: comment(stage, job) == SAID)
    assert SAID in stage.slurm.exec("squeue", f"--jobs={job}", "--Format=admin_comment:120")
    await stage.lock(lock(job, node=OTHER, leaving=1))
    where = "2 nodes of this job (the first is node01)"
    more = f"sunk: waits: 4 Pods have to leave {where}, the last by 14:05:10 UTC"
    await until(lambda: comment(stage, job) == more)

    await stage.lock(lock(job, leaving=0))
    await stage.lock(lock(job, node=OTHER, leaving=0))
    goes_on(stage, job)
    await until(lambda: comment(stage, job) == "")


async def test_what_somebody_else_wrote_stays(stage: Stage) -> None:
    before, after, ours = [await in_prolog(stage) for _ in range(3)]
    set_comment(stage, before, "ticket 4711")
    await stage.lock(lock(before, after, ours))
    await until(lambda: [comment(stage, job) for job in (after, ours)] == [SAID, SAID])
    set_comment(stage, after, "ticket 4712")
    assert comment(stage, before) == "ticket 4711"

    await stage.lock(lock(before, after, ours, leaving=2))
    await until(lambda: comment(stage, ours) == SAID.replace("3", "2", 1))
    await stage.lock(lock(before, after, ours, leaving=0))
    for job in (before, after, ours):
        goes_on(stage, job)
    await until(lambda: comment(stage, ours) == "")

    assert [comment(stage, job) for job in (before, after)] == ["ticket 4711", "ticket 4712"]


async def test_a_syncer_that_starts_takes_back_what_an_earlier_one_wrote_and_no_mark_of_a_prolog(
    stage: Stage,
) -> None:
    granted, held = await in_prolog(stage), await in_prolog(stage)
    await stage.lock(lock(granted, held))
    await until(lambda: [comment(stage, job) for job in (granted, held)] == [SAID, SAID])
    stage.syncer.kill()
    goes_on(stage, granted)
    stage.slurm.exec("scontrol", "requeuehold", held)  # As a refused prolog does.
    set_comment(stage, held, "sunk: held: k8s: prolog pre-hook failed")
    goes_on(stage, held)
    await stage.lock(lock(granted, leaving=0))

    stage.syncer.start()

    await until(lambda: comment(stage, granted) == "")
    assert comment(stage, held) == "sunk: held: k8s: prolog pre-hook failed"


async def test_a_job_that_is_requeued_while_it_waited_says_so_no_longer(stage: Stage) -> None:
    job = await in_prolog(stage)
    await stage.lock(lock(job))
    await until(lambda: comment(stage, job) == SAID)

    stage.slurm.exec("scontrol", "requeue", job)
    goes_on(stage, job)
    await stage.lock(lock(leaving=0))

    await until(lambda: comment(stage, job) == "")
