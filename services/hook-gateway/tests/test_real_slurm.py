"""prolog.sh and epilog.sh, started by a real slurmd, with a gateway that says what it is told to."""

import re
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from sunk_hook_gateway.testing.scripted import ScriptedGateway, refusal, scripted_gateway
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release
from sunk_lab.slurm.testing import running_slurm

pytestmark = pytest.mark.lab

FILES = Path(__file__).parents[3] / "helm/slurm/files"
REASON = "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
WITHIN_S = 90.0


class Cluster:
    """Two nodes whose jobs start and end with our scripts."""

    def __init__(self, slurm: HostSlurm, gateway: ScriptedGateway) -> None:
        self.slurm = slurm
        self.gateway = gateway
        self.first, self.second = slurm.node_names
        slurm.write_file("token", "node-token\n")
        slurm.write_file(
            "hooks.env",
            f"SUNK_HOOKS_URL={gateway.url}\nSUNK_HOOKS_TOKEN_FILE=/lab/etc/token\nSUNK_HOOKS_DEADLINE_S=20\n",
        )
        for name in ("prolog", "epilog"):
            slurm.write_file(f"{name}.sh", (FILES / f"{name}.sh").read_text())
            slurm.write_file(
                name,
                f"#!/bin/bash\nexport SUNK_HOOKS_ENV=/lab/etc/hooks.env\nexec /lab/etc/{name}.sh\n",
            )

    def submit(self, *options: str) -> str:
        """Submit a job that leaves a trace if its script ever starts, and return its id."""
        command = "touch /lab/spool/ran-$SLURM_JOB_ID"
        shown = self.slurm.exec("sbatch", "-o", "/dev/null", *options, "--wrap", command)
        return shown.split()[-1]

    def has_run(self, job: str) -> bool:
        return f"ran-{job}" in self.slurm.exec("ls", "/lab/spool").split()

    def job(self, job: str, field: str) -> str:
        return _field(self.slurm.exec("scontrol", "-o", "show", "job", job), field)

    def node(self, node: str) -> tuple[bool, str]:
        """Return whether the node is drained or draining, and the reason."""
        shown = self.slurm.exec("scontrol", "-o", "show", "node", node)
        found = re.search(r"Reason=(.*?) \[", shown)
        return "DRAIN" in _field(shown, "State"), found[1] if found else ""

    def until_idle(self) -> None:
        """Return when no node has a prolog, a job or an epilog any more."""
        until(lambda: set(self.slurm.exec("sinfo", "-h", "-N", "-o", "%T").split()) <= {"idle", "drained"})


def _field(shown: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S*)", shown)
    return found[1] if found else ""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    release: Release = request.param
    hooks = ("Prolog=/lab/etc/prolog", "Epilog=/lab/etc/epilog", "PrologEpilogTimeout=50")
    with running_slurm(release, more=hooks) as slurm:
        yield slurm


@pytest.fixture
def cluster(slurm: HostSlurm) -> Generator[Cluster]:
    with scripted_gateway() as gateway:
        cluster = Cluster(slurm, gateway)
        yield cluster
        gateway.by_path.clear()
        gateway.answers = [(200, {})]
        gateway.may_answer.set()
        slurm.exec("scancel", "--user=root")
        cluster.until_idle()
        for node in slurm.node_names:
            if cluster.node(node)[0]:
                slurm.exec("scontrol", "update", f"nodename={node}", "state=undrain")


def test_a_job_starts_when_its_node_is_locked_and_its_epilog_gives_the_lock_back(cluster: Cluster) -> None:
    job = cluster.submit("-w", cluster.first)

    until(lambda: cluster.job(job, "JobState") == "COMPLETED" and len(cluster.gateway.sent) == 2)
    assert cluster.has_run(job)
    assert [path for path, _, _ in cluster.gateway.sent] == [
        f"/v1/nodes/{cluster.first}/prehook",
        f"/v1/nodes/{cluster.first}/release",
    ]
    assert {token for _, token, _ in cluster.gateway.sent} == {"Bearer node-token"}


def test_a_refused_job_never_starts_and_its_node_is_drained_with_our_reason(cluster: Cluster) -> None:
    cluster.gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=True, hold=False)

    job = cluster.submit("-w", cluster.first)

    until(lambda: cluster.node(cluster.first) == (True, REASON))
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "PENDING"
    assert cluster.job(job, "Priority") != "0"  # Not held: another node may take it.
    assert cluster.node(cluster.first) == (True, REASON)


def test_a_job_of_two_nodes_never_starts_when_one_of_them_is_refused(cluster: Cluster) -> None:
    cluster.gateway.by_path[f"/v1/nodes/{cluster.second}/prehook"] = refusal(drain=True, hold=False)

    job = cluster.submit("-N2")

    until(lambda: cluster.node(cluster.second) == (True, REASON))
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "PENDING"
    assert cluster.node(cluster.first) == (False, "")


def test_beyond_the_bound_the_job_is_held_and_no_node_drained(cluster: Cluster) -> None:
    cluster.gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=False, hold=True)

    job = cluster.submit("-w", cluster.first)

    until(lambda: cluster.job(job, "Priority") == "0")  # Held.
    cluster.until_idle()
    assert cluster.job(job, "JobState") == "PENDING"
    assert not cluster.has_run(job)
    assert cluster.node(cluster.first)[0] is False


def test_a_job_that_may_not_be_requeued_is_cancelled(cluster: Cluster) -> None:
    cluster.gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=True, hold=False)

    job = cluster.submit("--no-requeue", "-w", cluster.first)

    until(lambda: cluster.job(job, "JobState") == "CANCELLED")
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "CANCELLED"


def test_a_prolog_that_is_not_let_in_fails_and_its_job_never_starts(cluster: Cluster) -> None:
    cluster.gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = (401, {"error": "no"})

    job = cluster.submit("-w", cluster.first)

    own = "k8s: prolog pre-hook failed: no answer from the hook gateway (sunk:verify-undrain)"
    until(lambda: cluster.node(cluster.first) == (True, own))
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "PENDING"
    assert cluster.node(cluster.first) == (True, own)


def test_a_job_that_is_cancelled_while_its_prolog_waits_stays_cancelled(cluster: Cluster) -> None:
    cluster.gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=True, hold=False)
    cluster.gateway.may_answer.clear()
    job = cluster.submit("-w", cluster.first)
    until(lambda: bool(cluster.gateway.sent))

    cluster.slurm.exec("scancel", job)
    cluster.gateway.may_answer.set()
    cluster.until_idle()

    assert cluster.job(job, "JobState") == "CANCELLED"
    assert cluster.node(cluster.first)[0] is False


def test_a_node_stays_completing_while_the_placeholders_pod_is_there(cluster: Cluster) -> None:
    path = f"/v1/nodes/{cluster.first}/release"
    cluster.gateway.by_path[path] = (202, {"gone": False})
    job = cluster.submit("-w", cluster.first)

    until(lambda: len([sent for sent in cluster.gateway.sent if sent[0] == path]) > 3)
    assert "COMPLETING" in cluster.slurm.exec("scontrol", "-o", "show", "node", cluster.first)

    cluster.gateway.by_path.clear()
    cluster.until_idle()
    assert cluster.job(job, "JobState") == "COMPLETED"
