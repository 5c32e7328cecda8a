"""Locks and releases that take long: what Slurm signs when it allocates a job outlives them.

Measured: where AuthInfo is not set, a job whose prolog took 62 s is FAILED with Slurm 24.11 and auth/slurm.
"""

import time
from collections.abc import Generator

import pytest

from sunk_hook_gateway.testing.cluster import SCRIPTS, Cluster, until
from sunk_hook_gateway.testing.scripted import ScriptedAnswer, ScriptedGateway
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]  # Two waits of more than a minute.

DEADLINE_S = 230
MARK = '{"sunk":{"uid":"u","pod":"ns/p","attempt":0,"mark":"m"}}'
WAITS_S = [
    pytest.param(10, marks=pytest.mark.nightly),
    70,
    pytest.param(200, marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    nodes = NodeRange(count=3, first_port=0, cpus=16)
    limit_s = DEADLINE_S + 30
    with running_slurm(request.param, nodes=nodes, prolog_epilog_timeout_s=limit_s, more=SCRIPTS) as slurm:
        yield slurm


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    cluster.configure(f"SUNK_HOOKS_DEADLINE_S={DEADLINE_S}\n")
    return cluster


def start(cluster: Cluster) -> list[str]:
    """Start a job of each kind on the first node, one of them on the second too, and return their ids."""
    first = cluster.first
    jobs = [
        cluster.submit("-n1", "-w", first),
        cluster.submit("-n1", "--array=1-2", "-w", first),
        cluster.submit("-N2", "-n2", "-w", f"{first},{cluster.second}"),
        cluster.submit("-n1", "--no-requeue", f"--extra={MARK}", "-w", first),
    ]
    for command in ("srun", "salloc"):
        line = f"{command} -n1 -w {first} touch /lab/spool/ran-{command}; echo $? >/lab/spool/ended-{command}"
        cluster.slurm.exec("bash", "-c", f"({line}) >/lab/spool/said-{command} 2>&1 </dev/null &")
    return jobs


def queued(cluster: Cluster) -> list[str]:
    """Return the state of every job and task that is not over."""
    return cluster.slurm.exec("squeue", "-h", "-r", "-o", "%T").split()


def held_for(wait_s: int) -> None:
    """Return when locks have been held for so long: what is tested is that time has passed."""
    time.sleep(wait_s)


@pytest.mark.parametrize("wait_s", WAITS_S)
def test_jobs_of_all_kinds_start_after_a_long_lock_and_end_after_a_long_epilog(
    cluster: Cluster, gateway: ScriptedGateway, wait_s: int
) -> None:
    prehook, release = (f"/v1/nodes/{cluster.first}/{hook}" for hook in ("prehook", "release"))
    gateway.by_path = {prehook: (202, {"locked": False}), release: (202, {"gone": False})}
    cluster.slurm.exec("bash", "-c", "rm -f /lab/spool/*-srun /lab/spool/*-salloc")

    jobs = start(cluster)
    until(lambda: queued(cluster) == ["RUNNING"] * 7)
    until(lambda: len({body["job"] for path, _, body in gateway.sent if path == prehook}) == 7)
    held_for(wait_s)
    assert queued(cluster) == ["RUNNING"] * 7
    assert not any(cluster.has_run(job) for job in (*jobs, "srun", "salloc"))
    del gateway.by_path[prehook]

    until(lambda: all(cluster.has_run(job) for job in (*jobs, "srun", "salloc")))
    until(lambda: queued(cluster) == ["COMPLETING"] * 7)
    held_for(wait_s)
    assert queued(cluster) == ["COMPLETING"] * 7
    del gateway.by_path[release]

    cluster.until_idle()
    assert [cluster.job(job, "JobState") for job in jobs] == ["COMPLETED"] * 4
    assert [cluster.slurm.exec("cat", f"/lab/spool/ended-{one}").strip() for one in ("srun", "salloc")] == [
        "0",
        "0",
    ]
    assert not any(cluster.node(node)[0] for node in cluster.slurm.node_names)


@pytest.mark.parametrize("answer", [(0, ""), (503, {"retry": True})], ids=["no answer", "try again"])
def test_a_users_extra_keeps_no_node_for_a_gateway_that_does_not_answer(
    cluster: Cluster, gateway: ScriptedGateway, answer: ScriptedAnswer
) -> None:
    gateway.by_path = {f"/v1/nodes/{cluster.first}/release": answer}

    job = cluster.submit("-n1", '--extra={"sunk":{', "-w", cluster.first)

    until(lambda: cluster.has_run(job))
    cluster.until_idle()  # Which does not wait for as long as a placeholder's node may be held up.
    assert cluster.node(cluster.first) == (False, "")
