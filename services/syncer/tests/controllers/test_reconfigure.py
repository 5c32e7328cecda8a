"""Slurm is reconfigured when its files have changed."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sunk_runtime.clock import now
from sunk_runtime.leases import Leadership
from sunk_runtime.testing import WITHIN_S, until
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.testing import job as one_job
from sunk_syncer.config import Config
from sunk_syncer.controllers.reconfigure import ReconfigureController, digest
from sunk_syncer.policy.requeues import is_in_prolog
from sunk_syncer.states.jobs import job_state

pytestmark = pytest.mark.anyio


class Slurm:
    """Counts."""

    def __init__(self) -> None:
        self.times = 0
        self.at_once = 0
        self.is_away = False

    async def reconfigure(self) -> None:
        self.at_once += 1
        assert self.at_once == 1
        await anyio.sleep(0.02)
        self.at_once -= 1
        if self.is_away:
            raise SlurmUnavailableError("away")
        self.times += 1


@asynccontextmanager
async def following(slurm: Slurm, *files: Path, again_s: float) -> AsyncGenerator[None]:
    """Have *slurm* reconfigured by the leader when *files* change."""
    config = Config(
        cluster="lab",
        reconfigure_files=":".join(map(str, files)),
        reconfigure_after_s=0.05,
        reconfigure_again_s=again_s,
        call_timeout_s=1,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ReconfigureController(slurm, Leadership("syncer", 1, float("inf")), config).run)
        yield
        tasks.cancel_scope.cancel()


async def test_it_is_reconfigured_once_a_change_however_many_files_change_together(tmp_path: Path) -> None:
    topology, gres = tmp_path / "topology.conf", tmp_path / "gres.conf"
    topology.write_text("a")
    slurm = Slurm()
    async with following(slurm, topology, gres, again_s=600):
        await until(lambda: slurm.times == 1)  # What changed while nobody led is not known.
        topology.write_text("c")
        gres.write_text("d")
        await until(lambda: slurm.times == 2)
        await anyio.sleep(0.3)

    assert slurm.times == 2


async def test_who_leads_anew_reconfigures_only_for_what_was_not_read_yet(tmp_path: Path) -> None:
    topology = tmp_path / "topology.conf"
    topology.write_text("a")
    slurm, leadership = Slurm(), Leadership("syncer", 1, float("inf"))
    config = Config(
        cluster="lab", reconfigure_files=str(topology), reconfigure_after_s=0.05, reconfigure_again_s=0.05
    )
    first = ReconfigureController(slurm, leadership, config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await until(lambda: first.done != "")
        tasks.cancel_scope.cancel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ReconfigureController(slurm, leadership, config, done=first.done).run)
        await anyio.sleep(0.3)
        assert slurm.times == 2
        topology.write_text("b")
        await until(lambda: slurm.times == 4)
        tasks.cancel_scope.cancel()


async def test_each_change_is_told_twice_as_slurmctld_may_get_the_file_after_us(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    slurm = Slurm()
    async with following(slurm, conf, again_s=0.1):
        await until(lambda: slurm.times == 2)
        conf.write_text("a")
        await until(lambda: slurm.times == 4)
        await anyio.sleep(0.3)

    assert slurm.times == 4


@pytest.mark.parametrize(
    ("ends", "limit_s", "looks"),
    [
        pytest.param(True, 600, 3, id="they end"),
        pytest.param(False, 0.5, 2, id="as long as they may take"),  # The second may come late.
    ],
)
async def test_it_waits_for_prologs_as_a_job_that_is_in_one_would_be_requeued(
    tmp_path: Path, *, ends: bool, limit_s: float, looks: int
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("a")
    slurm, jobs, asked = Slurm(), {7}, list[int]()
    config = Config(
        cluster="lab",
        reconfigure_files=str(conf),
        reconfigure_after_s=0.05,
        reconfigure_again_s=600,
        prolog_limit_s=limit_s,
    )

    def in_prolog() -> set[int]:
        asked.append(slurm.times)
        return jobs

    leadership = Leadership("syncer", 1, float("inf"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ReconfigureController(slurm, leadership, config, in_prolog=in_prolog).run)
        await until(lambda: len(asked) >= looks)
        assert asked[:looks] == [0] * looks
        if ends:
            jobs.clear()
        await until(lambda: slurm.times == 1)
        tasks.cancel_scope.cancel()


async def test_files_that_change_while_it_waits_for_prologs_do_not_make_it_wait_for_longer(
    tmp_path: Path,
) -> None:
    conf = tmp_path / "slurm.conf"
    slurm = Slurm()
    config = Config(
        cluster="lab",
        reconfigure_files=str(conf),
        reconfigure_after_s=0.05,
        reconfigure_again_s=600,
        prolog_limit_s=1.0,
    )
    leadership = Leadership("syncer", 1, float("inf"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ReconfigureController(slurm, leadership, config, in_prolog=lambda: {7}).run)
        with anyio.fail_after(WITHIN_S):
            for content in itertools.count():
                conf.write_text(str(content))
                await anyio.sleep(0.3)
                if slurm.times:
                    break
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("state", "reason", "flags", "is_so"),
    [
        pytest.param("RUNNING", "Prolog", (), True, id="in its prolog"),
        pytest.param("RUNNING", "", (), False, id="past it"),
        pytest.param("CANCELLED", "Prolog", ("COMPLETING",), False, id="cancelled in it"),
        pytest.param("CANCELLED", "Prolog", (), False, id="over: the reason stays, seen on both releases"),
    ],
)
def test_only_a_job_that_is_to_run_yet_is_waited_for(
    state: str, reason: str, flags: tuple[str, ...], *, is_so: bool
) -> None:
    told = job_state(one_job(7, state, *flags, reason=reason), 1, now())

    assert is_in_prolog(told) is is_so


def test_a_file_that_is_not_there_hides_no_change_of_another(tmp_path: Path) -> None:
    conf, topology = tmp_path / "slurm.conf", tmp_path / "topology.conf"

    conf.write_text("a")
    without = digest((conf, topology))
    conf.write_text("b")
    changed = digest((conf, topology))
    topology.write_text("")

    assert len({without, changed, digest((conf, topology)), ""}) == 4


def test_a_file_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").mkdir()

    assert digest((tmp_path / "slurm.conf",)) == ""
