"""Jobs whose prolog was lost with its slurmd: Slurm itself would leave them RUNNING for ever.

And jobs whose launch was lost: Slurm itself requeues them.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import anyio
import pytest

from sunk_events.nodesets import KubePodState
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.roots import INSTANCE
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.testing import until
from sunk_syncer.testing.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.anyio]

N1, N2 = "node01", "node02"
PROLOG = f"""#!/bin/bash
while [ -e {INSTANCE}/etc/block.$SLURMD_NODENAME ]; do sleep 0.1; done
: >{INSTANCE}/etc/passed.$SLURMD_NODENAME
"""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    more = (f"Prolog={INSTANCE}/etc/prolog", "ReturnToService=0")
    with running_slurm(request.param, nodes=NodeRange(count=2, first_port=0), more=more) as slurm:
        slurm.write_file("prolog", PROLOG)
        yield slurm


@pytest.fixture
async def impatient(stage: Stage) -> Stage:
    """Prologs that are certainly lost are given up at once."""
    for name in (N1, N2):
        ready = KubePodState(
            changed=datetime.now(UTC),
            pod=name,
            namespace="slurm",
            nodeset="compute",
            kube_node=f"k-{name}",
            uid=f"uid-{name}",
            phase="running",
            is_ready=True,
        )
        await stage.pod(ready)
    await stage.stop_syncer()
    stage.syncer.start(prolog_lost_s="0.5")
    return stage


async def in_prolog(stage: Stage, slurm: HostSlurm, *options: str) -> str:
    """Submit a job whose prolog on the first node waits, and return it when that runs."""
    slurm.write_file(f"block.{N1}", "")
    wrap = ("--exclusive", "--requeue", "-D/", "-o/dev/null", "--wrap=sleep 300")
    job = slurm.exec("sbatch", "--parsable", *options, *wrap).strip()
    await until(lambda: (state := stage.jobs.get(job)) is not None and state.reason == "Prolog")
    await anyio.sleep(2)  # Slurm's times are whole seconds; nothing may have happened meanwhile.
    assert "JobRequeued" not in stage.published(job)
    return job


async def let_go(stage: Stage, slurm: HostSlurm, job: str) -> None:
    slurm.exec("rm", "-f", f"{INSTANCE}/etc/block.{N1}")
    slurm.exec("scancel", job)
    for name in (N1, N2):
        await stage.until_node(name, None)
        await until(partial(is_up, stage, name))


def is_up(stage: Stage, name: str) -> bool:
    return (node := stage.nodes.get(name)) is not None and not node.is_down


def is_younger(stage: Stage, node: str, job: str) -> bool:
    """Whether slurmd of *node* was replaced since *job* began."""
    state, began = stage.nodes.get(node), stage.jobs.get(job)
    if state is None or state.slurmd_started is None or began is None or began.started is None:
        return False
    return state.slurmd_started > began.started


async def test_a_job_whose_prolog_was_lost_is_requeued_and_one_whose_prolog_runs_is_not(
    impatient: Stage, slurm: HostSlurm
) -> None:
    stage = impatient
    job = await in_prolog(stage, slurm, f"--nodelist={N1}")

    slurm.kill_daemon(N1)
    slurm.start_daemon(N1)
    await until(lambda: "JobRequeued" in stage.published(job))

    await until(lambda: stage.syncer.has_logged("job requeued"))
    await let_go(stage, slurm, job)


async def test_a_reconfigure_requeues_no_job_that_waits_in_its_prolog(
    impatient: Stage, slurm: HostSlurm
) -> None:
    stage = impatient
    job = await in_prolog(stage, slurm, "--nodes=2")

    slurm.exec("scontrol", "reconfigure")
    await until(lambda: is_younger(stage, N2, job))
    await anyio.sleep(3)  # By now it would have been requeued.
    slurm.exec("rm", f"{INSTANCE}/etc/block.{N1}")
    await until(lambda: (state := stage.jobs.get(job)) is not None and not state.reason)

    assert "JobRequeued" not in stage.published(job)
    await let_go(stage, slurm, job)


async def test_slurm_requeues_a_job_whose_launch_no_slurmd_acknowledges_although_it_may_not_be_requeued(
    stage: Stage, slurm: HostSlurm
) -> None:
    slurm.write_file(f"block.{N2}", "")
    slurm.exec("rm", "-f", f"{INSTANCE}/etc/passed.{N1}")
    wrap = ("--nodes=2", "--exclusive", "--no-requeue", "-D/", "-o/dev/null", "--wrap=sleep 300")
    job = slurm.exec("sbatch", "--parsable", *wrap).strip()
    await until(lambda: (state := stage.jobs.get(job)) is not None and state.reason == "Prolog")
    # The prolog of the first node, where the script would begin, is through, and slurmd has said so.
    await until(lambda: f"passed.{N1}" in slurm.exec("ls", f"{INSTANCE}/etc").split())
    await anyio.sleep(2)

    slurm.freeze_daemon(N1)
    slurm.exec("rm", f"{INSTANCE}/etc/block.{N2}")
    await until(lambda: (state := stage.jobs.get(job)) is not None and bool(state.restarts))
    state = stage.jobs.get(job)
    slurm.kill_daemon(N1)  # One that goes on finds the launch late, and the job is cancelled.
    slurm.exec("scancel", job)  # The last test: its nodes have ended it only a minute later.

    assert state is not None
    assert (state.state, state.is_completing) == ("PENDING", True)
