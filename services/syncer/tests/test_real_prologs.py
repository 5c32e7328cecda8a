"""Jobs whose prolog was lost with its slurmd: Slurm itself would leave them RUNNING for ever."""

from collections.abc import Iterator
from datetime import UTC, datetime

import anyio
import pytest

from sunk_events.nodesets import KubePodState
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.roots import INSTANCE
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.testing import until
from sunk_syncer.testing import Stage

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.anyio]

N1 = "node01"
PROLOG = f"#!/bin/bash\nwhile [ -e {INSTANCE}/etc/block ]; do sleep 0.1; done\nexit 0\n"


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    more = (f"Prolog={INSTANCE}/etc/prolog",)
    with running_slurm(request.param, nodes=NodeRange(count=1, first_port=0), more=more) as slurm:
        slurm.write_file("prolog", PROLOG)
        yield slurm


async def test_a_job_whose_prolog_was_lost_is_requeued_and_one_whose_prolog_runs_is_not(
    stage: Stage, slurm: HostSlurm
) -> None:
    slurm.write_file("block", "")
    await stage.pod(
        KubePodState(
            changed=datetime.now(UTC),
            pod=N1,
            namespace="slurm",
            nodeset="compute",
            kube_node="k1",
            uid="uid-1",
            phase="running",
            is_ready=True,
        )
    )
    stage.syncer.kill()
    stage.syncer.start(prolog_lost_s="0.5")
    wrap = ("--exclusive", "--requeue", "-D/", "-o/dev/null", "--wrap=sleep 300")
    job = slurm.exec("sbatch", "--parsable", *wrap).strip()
    await until(lambda: (state := stage.jobs.get(job)) is not None and state.reason == "Prolog", within_s=20)
    await anyio.sleep(2)  # Slurm's times are whole seconds; nothing may have happened meanwhile.
    assert "JobRequeued" not in stage.told(job)

    slurm.kill_daemon(N1)
    slurm.start_daemon(N1)
    await until(lambda: "JobRequeued" in stage.told(job), within_s=20)

    assert stage.syncer.says("job requeued")
    slurm.exec("rm", f"{INSTANCE}/etc/block")
    slurm.exec("scancel", job)
    await stage.until_node(N1, None)
