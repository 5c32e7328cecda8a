"""Slurm on the machine, for real, in both releases."""

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.processes import wait_for
from sunk_lab.slurm.accounting import DATABASE, SLURMDBD
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, SLURM_26_05, Release
from sunk_lab.slurm.roots import root_of
from sunk_lab.slurm.testing import running_slurm, slurm_lab

__all__ = ["slurm_lab"]

pytestmark = pytest.mark.lab


def asked(slurm: HostSlurm, path: str, body: object = None, user: str = "root") -> dict[str, Any]:
    """Ask slurmrestd in the version that both releases serve."""
    request = urllib.request.Request(  # noqa: S310 - our own slurmrestd.
        f"{slurm.url}/slurm/v0.0.42/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-SLURM-USER-TOKEN": slurm.token(user), "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above.
        return json.load(answer)


def remains(folder: Path) -> list[str]:
    """Return what of a cluster is left: processes that name its folder, mounts of it, the folder."""
    found = [str(folder)] * folder.exists()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            texts = (process / "cmdline").read_text(), (process / "mountinfo").read_text()
        except OSError:
            continue
        found += [process.name for text in texts if str(folder) in text]
    return found


def state_of(slurm: HostSlurm, node: str) -> str:
    return slurm.exec("sinfo", "-h", "-n", node, "-o", "%T").strip()


def test_a_job_runs_on_every_node_with_its_gpus_untouched_by_the_machine(slurm_lab: HostSlurm) -> None:
    printed = slurm_lab.exec("srun", "-N2", "-l", "bash", "-c", "echo $SLURMD_NODENAME")

    assert sorted(printed.split()[1::2]) == ["node01", "node02"]


def test_the_rest_interface_takes_our_tokens_and_drains(slurm_lab: HostSlurm) -> None:
    asked(slurm_lab, "node/node01", {"state": ["DRAIN"], "reason": "by hand"})

    (node,) = asked(slurm_lab, "node/node01")["nodes"]
    assert (set(node["state"]), node["reason"]) == ({"IDLE", "DRAIN"}, "by hand")


def test_a_placeholder_job_runs_as_the_user_that_slurmctld_knows(slurm_lab: HostSlurm) -> None:
    job = {
        "user_id": "64100",
        "current_working_directory": "/",
        "standard_output": "/tmp/who",  # noqa: S108 - in the cluster's own root.
        "environment": ["PATH=/usr/bin:/bin"],
    }
    number = asked(slurm_lab, "job/submit", {"script": "#!/bin/bash\nwhoami\n", "job": job})["job_id"]

    def who() -> str:
        return slurm_lab.exec("cat", "/tmp/who").strip()  # noqa: S108 - as above.

    assert wait_for(f"job {number}", who) == "sunk"


def test_a_node_may_register_itself(slurm_lab: HostSlurm) -> None:
    slurm_lab.add_node("extra1", features=("gb200",))

    assert wait_for("the node", lambda: state_of(slurm_lab, "extra1") == "idle")


def test_a_killed_slurmctld_comes_back_with_its_nodes(slurm_lab: HostSlurm) -> None:
    slurm_lab.kill_daemon("slurmctld")
    slurm_lab.start_daemon("slurmctld")

    assert wait_for("the nodes", lambda: state_of(slurm_lab, "node[01-02]") in ("idle", "mixed"))


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_accounting_has_the_jobs_that_ran_also_after_a_restart_of_all_that_keeps_them(
    release: Release,
) -> None:
    with running_slurm(release, nodes=1, has_accounting=True) as slurm:
        slurm.exec("srun", "true")
        wait_for("accounting", lambda: "COMPLETED" in slurm.exec("sacct", "-aXn", "-o", "state"))
        for name in (SLURMDBD, DATABASE):
            slurm.kill_daemon(name, signal.SIGTERM)
        for name in (DATABASE, SLURMDBD):
            slurm.start_daemon(name)

        assert "COMPLETED" in slurm.exec("sacct", "-aXn", "-o", "state")


def test_a_prolog_runs_before_the_jobs_first_line() -> None:
    with running_slurm(SLURM_26_05, nodes=1, more=("Prolog=/lab/etc/prolog",)) as slurm:
        slurm.write_file("prolog", "#!/bin/bash\necho $SLURMD_NODENAME >/tmp/prolog\n")

        assert slurm.exec("srun", "cat", "/tmp/prolog").strip() == "node01"  # noqa: S108 - in its own root.


def test_gpus_are_counted_and_given_out() -> None:
    with running_slurm(SLURM_26_05, nodes=NodeRange(count=1, first_port=0, gpus=8)) as slurm:
        printed = slurm.exec("srun", "--gres=gpu:2", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES")

        assert printed.strip() == "0,1"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_a_thousand_nodes_more_are_mere_records_and_can_be_drained(release: Release) -> None:
    with running_slurm(release, nodes=1, records=1000) as slurm:
        slurm.exec("scontrol", "update", "node=record[0001-1000]", "state=drain", "reason=test")
        drained = slurm.exec("sinfo", "-h", "-p", "records", "-t", "drained", "-o", "%D").split()

    assert sum(map(int, drained)) == len(slurm.record_names) == 1000


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_stop_leaves_nothing_even_of_a_cluster_that_another_run_left(
    release: Release, tmp_path: Path
) -> None:
    cache = from_environment().cache
    with running_slurm(release, nodes=1):  # Skips where it cannot run; and two at once do not meet.
        left = HostSlurm(release, tmp_path / "lab", cache=cache, report=print, nodes=1)
        left.start()
        left.exec("sbatch", "--chdir=/", "--output=/dev/null", "--wrap", "sleep 600")
        assert remains(tmp_path / "lab")

        HostSlurm(release, tmp_path / "lab", cache=cache, report=print).stop()

    assert remains(tmp_path / "lab") == []


def test_a_start_over_leftovers_is_a_fresh_cluster(tmp_path: Path) -> None:
    cache = from_environment().cache
    with running_slurm(SLURM_26_05, nodes=1):
        pass
    left = HostSlurm(SLURM_26_05, tmp_path / "lab", cache=cache, report=print, nodes=1)
    left.start()
    fresh = HostSlurm(SLURM_26_05, tmp_path / "lab", cache=cache, report=print, nodes=2)
    try:
        fresh.start()

        assert fresh.exec("srun", "-N2", "true") == ""
    finally:
        fresh.stop()


def test_a_port_that_is_taken_is_one_clear_error(slurm_lab: HostSlurm, tmp_path: Path) -> None:
    port = slurm_lab.controller_port
    other = HostSlurm(
        slurm_lab.release, tmp_path / "lab", cache=from_environment().cache, report=print, port=port
    )

    with pytest.raises(LabError, match=f"port {port} of 127.0.0.1 is taken"):
        other.start()


def test_a_root_does_not_tell_which_mirror_made_it() -> None:
    with running_slurm(SLURM_26_05, nodes=0):  # Skips where there is none.
        root = root_of(SLURM_26_05, from_environment().cache, print)

    told = [path for folder in ("etc/apt", "var/lib/apt/lists") for path in (root / folder).rglob("*.list*")]
    assert told == []
