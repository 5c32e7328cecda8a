"""Jobs with a /tmp of their own by Slurm, on a privileged slurmd."""

from collections.abc import Generator
from typing import Any, Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.installation import NAMESPACE, Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.releases import RELEASES, SLURM_24_11, SLURM_26_05
from sunk_lab.story.installed import Installed
from sunk_lab.story.stage import Scene
from sunk_lab.story.steps import STEPS

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
JOBS: Final = "/var/spool/slurmd/jobs"
PLUGINS: Final = {
    SLURM_24_11: "JobContainerType=job_container/tmpfs",
    SLURM_26_05: "NamespaceType=namespace/tmpfs",
}


class Contained(Installation):
    """A cluster with the values that the chart's README gives."""

    def make_namespaces(self) -> None:
        super().make_namespaces()
        label = "pod-security.kubernetes.io/enforce=privileged"
        self.lab.kubectl("label", "namespace", NAMESPACE, label, "--overwrite")

    def values(self) -> dict[str, Any]:
        values = super().values()
        conf = {
            "extraConfig": PLUGINS[self.slurm],
            "jobContainerConfig": f"AutoBasePath=true\nBasePath={JOBS}\n",
        }
        values["compute"]["nodes"]["cpu"]["securityContext"] = {"privileged": True}
        return values | {"slurmConfig": conf}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Contained]:
    """Both charts on one Node."""
    with reserved_lab() as lab:
        made = Contained(lab, nodes=("node1",), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        yield made


def test_a_job_has_a_tmp_of_its_own_that_goes_with_it(cluster: Contained) -> None:
    write = "id -un; touch /tmp/mine /dev/shm/mine; ls /tmp /dev/shm | grep -c mine"
    as_ada = "cd /tmp && timeout 60 setpriv --reuid=2000 --regid=2000 --clear-groups srun -N1 -w"
    node = cluster.login("sinfo -h -N -o %N").split()[0]

    told = cluster.login(f"{as_ada} {node} bash -c '{write}'")

    assert told.split() == ["ada", "2"]
    left = cluster.kubectl("exec", node, "-c", "slurmd", "--", "bash", "-c", f"ls /tmp /dev/shm; ls {JOBS}/*")
    assert "mine" not in left
    assert cluster.login(f"{as_ada} {node} ls /tmp /dev/shm").count("mine") == 0
    wait_for("the folders of both jobs to go", lambda: not jobs_of(cluster, node), 60)


def test_a_job_may_start_on_any_cpu_of_its_node(cluster: Contained) -> None:
    # On Linux 6.18 about one in two slurmds had a CPU where none did.
    node = cluster.login("sinfo -h -N -o %N").split()[0]
    cpus = cluster.kubectl("exec", node, "-c", "slurmd", "--", "nproc")
    keep = (
        "mkdir /run/kept; mount --bind --make-private /run/kept /run/kept; touch /run/kept/one;"
        f"for ((cpu = 0; cpu < {cpus}; cpu++)); do"
        " taskset -c $cpu unshare --mount=/run/kept/one echo kept; done;"
        "umount --lazy /run/kept"
    )

    told = cluster.kubectl("exec", node, "-c", "slurmd", "--", "bash", "-c", keep)

    assert told.split() == ["kept"] * int(cpus)
    ran = "for turn in {1..10}; do timeout 60 srun -N1 -w $1 echo ran </dev/null || true; done"
    assert cluster.login(f"cd /tmp; set -- {node}; {ran}").split() == ["ran"] * 10


def jobs_of(cluster: Contained, node: str) -> list[str]:
    """Return the folders of jobs on *node*."""
    find = f"find {JOBS} -mindepth 1 -maxdepth 2 -type d -regex '.*/[0-9]+'"
    return cluster.kubectl("exec", node, "-c", "slurmd", "--", "bash", "-c", find).split()


@pytest.fixture(scope="module")
def scene(cluster: Contained) -> Generator[Scene]:
    """What the story is told on."""
    sides = Installed(cluster)
    yield Scene(sides)
    sides.close()


@pytest.mark.parametrize("name", ["lock", "place"])
def test_the_step_of_the_story_holds_with_the_prolog_flag_contain(scene: Scene, name: str) -> None:
    assert STEPS[name](scene)
