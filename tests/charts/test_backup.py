"""Backup and restore as docs/backup.md says it: its own commands, into a namespace with nothing left."""

import re
import subprocess
from collections.abc import Generator
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.installation import NAMESPACE, Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.cluster_images import REGISTRY, SLURM
from sunk_lab.slurm.releases import RELEASES

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "backup.md"
BEFORE: Final = "## Restoring"
IMAGE: Final = "REGISTRY/sunk/slurm:24.11"


class Steps:
    """The page's commands, which are run in *folder*."""

    def __init__(self, cluster: Installation, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        backup, restore = PAGE.read_text().split(BEFORE)
        self.backup = _commands(backup)
        self.restore = _commands(restore)

    def run(self, commands: str) -> None:
        """Run *commands* of the page; the first that fails ends them."""
        lab = self._cluster.lab
        there = f"{REGISTRY}/{SLURM}:{self._cluster.slurm.version}"
        here = f"export KUBECONFIG={lab.kubeconfig} PATH={lab.programs}:$PATH"
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", f"{here}\n{commands.replace(IMAGE, there)}"],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"


def _commands(text: str) -> list[str]:
    return [dedent(found) for found in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)]


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def cluster(request: pytest.FixtureRequest) -> Generator[Installation]:
    """Both charts with one compute Node, of each Slurm."""
    with reserved_lab() as lab:
        made = Installation(lab, nodes=("node1",), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        yield made


def test_a_cluster_that_is_lost_comes_back_from_its_backup(cluster: Installation, tmp_path: Path) -> None:
    steps = Steps(cluster, tmp_path)
    cluster.login("timeout 60 srun -J remembered true")
    cluster.login("sacctmgr -i add account treasure")
    held = cluster.login("sbatch --parsable --hold -J later --output=/dev/null --wrap=true").strip()
    wait_for("the record", partial(has_ended, cluster, "remembered"), 60)
    for commands in steps.backup:
        steps.run(commands)
    lose(cluster)

    keys, database, state = steps.restore
    steps.run(keys)
    values = cluster.values()
    nodes = {name: node | {"replicas": 0} for name, node in values["compute"]["nodes"].items()}
    quiet = {name: values[name] | {"enabled": False} for name in ("login", "scheduler")}
    cluster.install_slurm(values | quiet | {"compute": values["compute"] | {"nodes": nodes}})
    steps.run(database)
    steps.run(state)
    cluster.install_slurm()
    cluster.await_idle()

    assert cluster.login(f"squeue -h -j {held} -o '%j %r'").strip() == "later JobHeldUser"
    assert cluster.login("sacctmgr -nP show account treasure format=account").strip() == "treasure"
    assert has_ended(cluster, "remembered")
    cluster.login(f"scontrol release {held}")
    wait_for("the job that was held", partial(has_ended, cluster, "later"), 120)
    assert cluster.login("sbatch --parsable --output=/dev/null --wrap=true").strip() == str(int(held) + 1)


def has_ended(cluster: Installation, job: str) -> bool:
    """Return whether accounting has *job* as completed."""
    return "COMPLETED" in cluster.login(f"sacct -aXn --name={job} -o state")


def lose(cluster: Installation) -> None:
    """Take everything that the Slurm cluster has, with its volumes and keys; only namespaces are left."""
    cluster.uninstall_slurm()
    cluster.lab.kubectl("delete", "namespace", NAMESPACE, "--timeout=240s")
    cluster.make_namespaces()
    cluster.install_sunk()  # Its Secrets in the namespace of Slurm.
