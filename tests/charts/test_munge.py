"""Slurm authenticates by MUNGE (`auth.type: munge`), with munged in each of its Pods, on both releases."""

import base64
import json
import time
from collections.abc import Generator
from typing import Any, Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.story.installed import Installed
from sunk_lab.story.stage import Scene
from sunk_lab.story.steps import STEPS

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
ID: Final = "sunk.coreweave.com/munge-key-id"
AS_ADA: Final = "cd /tmp && setpriv --reuid=2000 --regid=2000 --clear-groups"


class Munge(Installation):
    """A cluster with `auth.type: munge`."""

    key: str = "1"

    def values(self) -> dict[str, Any]:
        return super().values() | {"auth": {"type": "munge"}, "keys": {"mungeKeyId": self.key}}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Munge]:
    """Both charts on two Nodes."""
    with reserved_lab() as lab:
        made = Munge(lab, nodes=("node1", "node2"), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        yield made


@pytest.fixture(scope="module")
def scene(cluster: Munge) -> Generator[Scene]:
    """What the story is told on."""
    sides = Installed(cluster)
    yield Scene(sides)
    sides.close()


def keys(cluster: Munge) -> dict[str, bytes]:
    """Return what the Secret has of MUNGE."""
    data = json.loads(cluster.kubectl("get", "secret", "slurm-keys", "-o", "json"))["data"]
    return {name: base64.b64decode(text) for name, text in data.items() if name.startswith("munge.")}


def shell(cluster: Munge, pod: str, container: str, command: str) -> str:
    return cluster.kubectl("exec", pod, "-c", container, "--", "bash", "-c", command)


def test_all_daemons_and_users_of_a_login_pod_authenticate_by_munge(cluster: Munge) -> None:
    conf = cluster.login("scontrol show config | grep -E '^(AuthType|CredType) '").split()
    assert conf == ["AuthType", "=", "auth/munge", "CredType", "=", "cred/munge"]

    told = cluster.login(f"{AS_ADA} timeout 60 srun -N2 -l id -un")
    job = cluster.login(f"{AS_ADA} sbatch --parsable -N2 --output=/dev/null --wrap='srun true'").strip()
    wait_for("its record", lambda: "COMPLETED" in cluster.login(f"sacct -aXn -j {job} -o state"), 60)

    assert sorted(told.split()) == ["0:", "1:", "ada", "ada"]
    cluster.helm.test("slurm", timeout=120)


def test_no_container_in_which_users_are_has_a_key(cluster: Munge) -> None:
    nodes = cluster.login("sinfo -h -N -p cpu -o %N").split()
    look = "ls /secret/*.key /run/slurm-keys /run/slurm-jwks /run/munge-key /run/munge 2>/dev/null"
    for pod, container in (("slurm-login-0", "sshd"), (nodes[0], "slurmd")):
        seen = shell(cluster, pod, container, f"{look} || true")

        assert "munge.socket.2" in seen
        assert ".key" not in seen
        assert "jwks" not in seen
    with pytest.raises(LabError):
        cluster.login(f"{AS_ADA} rm /run/munge/munge.socket.2")


@pytest.mark.parametrize("name", ["lock", "place"])
def test_the_step_of_the_story_holds_with_munge(scene: Scene, name: str) -> None:
    assert STEPS[name](scene)


def test_the_key_is_rotated_at_one_moment_under_a_job_that_runs(cluster: Munge) -> None:
    old = keys(cluster)
    job = cluster.login("sbatch --parsable -N2 --output=/dev/null --wrap='srun sleep 100000'").strip()
    wait_for("the job", lambda: cluster.login(f"squeue -h -j {job} -o %T").split() == ["RUNNING"], 60)
    before = cluster.uids("pod")
    cluster.key = "2"
    cluster.install_slurm()
    under_way = keys(cluster)
    assert under_way["munge.key"] == old["munge.key"] != under_way["munge.next"]
    with pytest.raises(LabError, match=r"keys\.mungeKeyId: not all Pods have the change to \"2\" yet"):
        cluster.install_slurm(cluster.values() | {"keys": {"mungeKeyId": "3"}})
    # The old one signs until then.
    told = cluster.login(
        "timeout 60 srun -N2 true || { sinfo -N -o '%N %T %E'; squeue; scontrol show nodes; }"
    )
    assert told == ""

    def has_changed(pod: str, container: str = "munged") -> bool:
        return "starts again with it" in cluster.kubectl("logs", pod, "-c", container)

    nodes = cluster.login("sinfo -h -N -p cpu -o %N").split()
    daemons = ("slurm-controller-0", "slurm-accounting-0", "slurm-login-0", *nodes)
    wait_for("all to have the new key", lambda: all(map(has_changed, daemons)), 300)
    told = cluster.login("timeout 60 srun -N2 --overlap hostname").split()

    assert sorted(told) == sorted(nodes)
    assert cluster.login(f"squeue -h -j {job} -o %T").split() == ["RUNNING"]
    assert cluster.login("sinfo -h -R -o %E").split() == []
    cluster.login(f"scancel {job}")
    wait_for("its end", lambda: "CANCELLED" in cluster.login(f"sacct -aXn -j {job} -o state"), 60)
    assert cluster.login(f"sacct -aXn --duplicates -j {job} -o restarts").split() == ["0"]
    assert {pod: uid for pod, uid in before.items() if pod in daemons}.items() <= cluster.uids("pod").items()
    # A Pod that comes now has the new key too, and what the old one signed is not believed.
    signed = shell(cluster, "slurm-login-0", "sshd", "munge -n").strip()
    assert "Success" in shell(cluster, "slurm-controller-0", "slurmctld", f"echo '{signed}' | unmunge")
    assert int(under_way["munge.at"]) <= time.time()
