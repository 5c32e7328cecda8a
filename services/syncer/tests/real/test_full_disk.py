"""The disk of NATS is full: nothing is written to Slurm on old knowledge, and nothing is forgotten."""

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from sunk_lab.nats import NatsServer
from sunk_lab.small_disk import SmallDisk, small_disk
from sunk_runtime.errors import SunkError
from sunk_runtime.testing import until
from sunk_syncer.testing.stage import Stage, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.anyio]

N1, N2 = "node01", "node02"
READY = ready_pod()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    with small_disk(tmp_path / "nats" / "store", mib=16) as disk:
        yield disk


@pytest.fixture
def nats(disk: SmallDisk, tmp_path: Path) -> Iterator[NatsServer]:
    assert disk.free_bytes
    with NatsServer(tmp_path / "nats", max_store_mib=4096) as server:  # It would refuse to promise more.
        yield server


async def test_a_full_disk_of_nats_drains_nothing_and_all_is_told_when_there_is_space(
    stage: Stage, disk: SmallDisk
) -> None:
    async def is_said() -> bool:
        try:
            await stage.pod(replace(READY, is_cordoned=True, cordon_reason="disk"))
        except SunkError:  # NATS was started a moment ago.
            return False
        return True

    await stage.pod(READY)
    disk.fill()
    before = len(stage.syncer.log)
    stage.slurm.exec("scontrol", "update", f"node={N2}", "state=drain", "reason=by hand")
    await until(lambda: any(line["level"] == "warning" for line in stage.syncer.log[before:]))
    shown = stage.slurm.exec("scontrol", "show", "node", N1)
    disk.clear()
    await anyio.to_thread.run_sync(stage.nats.restart)
    await stage.until_node(N2, "by hand")
    await until(is_said)
    await stage.until_node(N1, "k8s: cordon: disk")
    await until(lambda: "NodeDrained" in stage.published(N1))

    assert "DRAIN" not in shown
    assert stage.published(N2).count("NodeDrained") == 1
