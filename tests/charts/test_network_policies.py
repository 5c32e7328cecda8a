"""The charts' network policies where they are enforced, with a range of ports for srun: who reaches whom.

The lab's rules are those of the moment, made of the policies that are there (`sunk_lab.kube.policies`).
"""

from collections.abc import Generator
from typing import Any, Final

import pytest

from sunk_kube.wellknown import TAINT_LOCK
from sunk_lab.config import from_environment
from sunk_lab.installation import Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.story.steps import SPOOL, TRAINING_SCRIPT

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
PORTS: Final = range(60001, 60064)
DAEMONS: Final = {
    "slurm-controller-0": 6817,
    "slurm-accounting-0": 6819,
    "slurm-mariadb-0": 3306,
    "slurm-login-0": 2222,
}
STRANGER: Final = "stranger"


class Fenced(Installation):
    """A cluster whose srun listens on some ports only."""

    def values(self) -> dict[str, Any]:
        lines = {"extraConfig": f"SrunPortRange={PORTS[0]}-{PORTS[-1]}"}
        return super().values() | {"slurmConfig": lines}

    def addresses(self) -> dict[str, str]:
        """Return the address and port of each daemon and of each slurmd, by the name of its Pod."""
        pods = {pod["metadata"]["name"]: pod for pod in self.items("pod")}
        rest = next(name for name in pods if name.startswith("slurm-rest-"))
        slurmds = [
            name for name, pod in pods.items() if "sunk.coreweave.com/nodeset" in pod["metadata"]["labels"]
        ]
        ports = DAEMONS | {rest: 6820} | dict.fromkeys(slurmds, 6818)
        return {name: f"{pods[name]['status']['podIP']}/{port}" for name, port in ports.items()}

    def reached_by_the_stranger(self) -> set[str]:
        """Return which Pods a Pod of another namespace has a connection to."""
        names = {address: name for name, address in self.addresses().items()}
        calls = "".join(
            f"(timeout 5 bash -c '</dev/tcp/{address}' && echo {address}) 2>/dev/null & " for address in names
        )
        told = self.lab.kubectl("-n", "default", "exec", STRANGER, "--", "bash", "-c", f"{calls} wait")
        return {names[address] for address in told.split()}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def cluster(request: pytest.FixtureRequest) -> Generator[Fenced]:
    """Both charts on two Nodes, which are compute Nodes too, and a Pod that has nothing to do with them."""
    with reserved_lab() as lab:
        made = Fenced(lab, nodes=("node1", "node2"), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        stranger = {
            "name": STRANGER,
            "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{request.param.version}",
            "args": ["sleep", "infinity"],
        }
        tolerations = [{"key": TAINT_LOCK, "operator": "Exists"}]
        made.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": STRANGER, "namespace": "default"},
                "spec": {"containers": [stranger], "tolerations": tolerations},
            }
        )
        lab.kubectl("-n", "default", "wait", "--for=condition=Ready", f"pod/{STRANGER}", "--timeout=120s")
        assert made.reached_by_the_stranger() == made.addresses().keys()  # Nothing but policies keeps it out.
        lab.enforce_policies()
        yield made


def test_a_pod_of_others_reaches_ssh_alone(cluster: Fenced) -> None:
    assert cluster.reached_by_the_stranger() == {"slurm-login-0"}


def test_srun_from_the_login_node_listens_on_a_port_of_the_range(cluster: Fenced) -> None:
    told = cluster.login("timeout 60 srun -N2 bash -c 'echo $SLURM_SRUN_COMM_PORT $SLURMD_NODENAME'")

    ports, names = zip(*(line.split() for line in told.splitlines()), strict=True)
    assert len(set(names)) == 2
    assert {int(port) in PORTS for port in ports} == {True}


def test_the_ranks_of_a_job_on_two_nodes_meet(cluster: Fenced) -> None:
    submit = "timeout 120 sbatch --parsable --wait -N2 -n2 --output=/dev/null --time=2 /tmp/train.sh"

    job = cluster.login(f"cd /tmp; cat >/tmp/train.sh <<'EOF'\n{TRAINING_SCRIPT}EOF\n{submit}").strip()

    leader = cluster.login(f"squeue -h -j {job} -t all -o %B").strip()
    told = cluster.kubectl("exec", leader, "-c", "slurmd", "--", "cat", f"{SPOOL}/trained-{job}")
    assert told.count(f"met at {leader}: sum 3") == 2


def test_accounting_hears_of_jobs_and_a_cordon_drains(cluster: Fenced) -> None:
    cluster.login("timeout 60 srun -J told true")
    wait_for("the job in sacct", lambda: "COMPLETED" in cluster.login("sacct -aXn --name=told -o state"), 60)

    cluster.lab.kubectl("cordon", "node2")
    wait_for("the drain", lambda: "k8s: cordon" in cluster.login("sinfo -h -R -o %E"), 60)
    cluster.lab.kubectl("uncordon", "node2")
    cluster.await_idle()
