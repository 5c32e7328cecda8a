"""The clock of Slurm's machine jumps by an hour, while drains come and go; ours does not."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.testing import until
from sunk_syncer.testing.stage import Stage, is_reason, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.anyio]

HOUR_S = 3600
CORDONS = 5
"""After each jump."""
STEADY, RESTLESS, OTHERS, VERIFIED, TOUCHED = "node01", "node02", "node03", "node04", "node05"
READY = ready_pod()
BY_HAND = "bad dimm"
NHC = "nhc: gpu 3 (sunk:verify-undrain)"


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    nodes = NodeRange(count=5, first_port=0)
    # After a jump slurmctld calls nodes silent, and behind its own clock it pings none for an hour: such a
    # node, with slurmd well, would be DOWN for as long.
    more = ("SlurmdTimeout=0",)
    with running_slurm(request.param, nodes=nodes, more=more, has_own_clock=True) as slurm:
        yield slurm


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
async def test_drains_go_on_and_none_is_wrong_when_slurms_clock_jumps_by_an_hour_and_back(
    stage: Stage, slurm: HostSlurm, tmp_path: Path, ahead_s: int
) -> None:
    (file := tmp_path / "token").write_text(slurm.token())  # For a day, as a key file's are for half an hour.
    await stage.stop_syncer()
    stage.syncer.start(slurm_key_file="", slurm_token_file=str(file))
    for node, reason in ((OTHERS, BY_HAND), (VERIFIED, NHC)):
        slurm.exec("scontrol", "update", f"node={node}", "state=drain", f"reason={reason}")
        await stage.until_node(node, reason)
    await stage.pod(READY)
    await stage.pod(replace(READY, pod=OTHERS, is_cordoned=True))
    # Half an hour old: newer than the drain for whoever believes the wrong clock.
    verified = datetime.now(UTC) - timedelta(seconds=HOUR_S / 2)
    await stage.pod(replace(READY, pod=VERIFIED, hpc_verified=verified))

    async with anyio.create_task_group() as tasks:
        done = anyio.Event()
        tasks.start_soon(cordon_again_and_again, stage, done)
        for jump_s in (ahead_s, 0):
            slurm.set_clock_ahead(jump_s)
            assert int(slurm.exec("date", "+%s")) - time.time() == pytest.approx(jump_s, abs=HOUR_S / 2)
            # Nobody tells the syncer of it: a list has to.
            slurm.exec("scontrol", "update", f"node={TOUCHED}", "state=drain", f"reason=at {jump_s}")
            await stage.until_node(TOUCHED, f"at {jump_s}")
            for _ in range(CORDONS):
                await stage.pod(replace(READY, is_cordoned=True, cordon_reason="disk"))
                await stage.until_node(STEADY, "k8s: cordon: disk")
                await stage.pod(READY)
                await stage.until_node(STEADY, None)
        done.set()
    await stage.pod(replace(READY, pod=RESTLESS))
    await stage.until_node(RESTLESS, None)

    changed = {line["node"] for line in stage.syncer.log if is_drain_changed(line)}
    assert changed - {RESTLESS} == {STEADY}
    for node, reason in ((OTHERS, BY_HAND), (VERIFIED, NHC)):
        told = stage.nodes.get(node)
        assert told is not None
        assert told.is_drain
        assert is_reason(told.reason, reason)


async def cordon_again_and_again(stage: Stage, done: anyio.Event) -> None:
    is_cordoned = False
    while not done.is_set():
        is_cordoned = not is_cordoned
        await stage.pod(replace(READY, pod=RESTLESS, is_cordoned=is_cordoned))
        with anyio.move_on_after(0.05):
            await done.wait()


def is_drain_changed(line: dict[str, object]) -> bool:
    return line["message"] == "node changed" and line["action"] != "DescribeNode"


async def test_tokens_that_a_jumped_clock_refuses_write_nothing_and_are_accepted_when_it_is_right_again(
    stage: Stage, slurm: HostSlurm
) -> None:
    await stage.pod(READY)
    slurm.set_clock_ahead(HOUR_S)
    await until(lambda: any("check the key" in str(line.get("error")) for line in stage.syncer.log))
    await stage.pod(replace(READY, is_cordoned=True, cordon_reason="disk"))
    shown = slurm.exec("scontrol", "show", "node", STEADY)
    slurm.set_clock_ahead(0)
    await stage.until_node(STEADY, "k8s: cordon: disk")
    await stage.pod(READY)
    await stage.until_node(STEADY, None)

    assert "DRAIN" not in shown
