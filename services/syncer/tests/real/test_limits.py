"""What comes to its end while the syncer runs: a token, a certificate, the room of an array."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm
from sunk_lab.tls import tls_proxy
from sunk_runtime.testing import until
from sunk_syncer.testing.stage import Stage, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1 = "node01"
TASKS = 10_000
READY = ready_pod()


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    more = (f"MaxArraySize={2 * TASKS}", f"MaxJobCount={5 * TASKS}")
    with running_slurm(request.param, more=more) as slurm:
        yield slurm


async def test_a_token_that_ends_while_it_is_in_use_is_replaced_by_what_its_file_holds_then(
    stage: Stage, slurm: HostSlurm, tmp_path: Path
) -> None:
    short, file = slurm.token(lifespan_s=2), tmp_path / "token"
    file.write_text(short)
    await stage.stop_syncer()
    stage.syncer.start(slurm_key_file="", slurm_token_file=str(file))
    await until(lambda: stage.syncer.has_logged("poll failed"))
    await stage.pod(replace(READY, is_cordoned=True, cordon_reason="disk"))
    file.write_text(slurm.token(lifespan_s=3600))
    await stage.until_node(N1, "k8s: cordon: disk")
    await stage.pod(READY)
    await stage.until_node(N1, None)

    assert not any(short in str(line) for line in stage.syncer.log)


async def test_a_slurmrestd_with_tls_is_believed_by_the_authority_that_is_set(
    stage: Stage, slurm: HostSlurm, tmp_path: Path
) -> None:
    await stage.stop_syncer()
    async with tls_proxy(slurm.url, tmp_path) as slurmrestd:
        stage.syncer.start(slurm_url=slurmrestd.url)
        await until(lambda: any("VERIFY_FAILED" in str(line) for line in stage.syncer.log))
        await stage.stop_syncer()
        stage.syncer.start(slurm_url=slurmrestd.url, slurm_ca_file=str(slurmrestd.ca_file))
        await stage.pod(replace(READY, is_cordoned=True, cordon_reason="disk"))
        await stage.until_node(N1, "k8s: cordon: disk")
        slurmrestd.certify("second")
        slurmrestd.end_all()
        await stage.pod(READY)
        await stage.until_node(N1, None)


async def test_an_array_of_thousands_of_held_tasks_is_one_state(stage: Stage, slurm: HostSlurm) -> None:
    def tasks() -> int:
        return told.array_tasks if (told := stage.jobs.get(job)) is not None else 0

    words = ("--hold", f"--array=1-{TASKS}", "-D/", "-o/dev/null", "--wrap=true")
    job = slurm.exec("sbatch", "--parsable", *words).strip()
    await until(lambda: tasks() == TASKS)
    slurm.exec("scancel", f"{job}_[2-{TASKS}]")
    await until(lambda: tasks() == 1)
    slurm.exec("scontrol", "release", job)
    await until(lambda: "JobEnded" in stage.published(job))

    assert len(stage.jobs) <= 2
