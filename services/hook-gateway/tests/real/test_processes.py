"""What a job leaves running on its node ends with it, and no process of another job: on a real slurmd.

Without cgroups Slurm loses a process whose parent has ended, so every user can leave one behind.
"""

from collections.abc import Generator
from typing import Final

import pytest

from sunk_hook_gateway.testing.cluster import FILES, HOOKS, Cluster, until
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm

pytestmark = pytest.mark.lab

USER: Final = "64100"
"""The image has this user."""
LIMITED: Final = (
    "setpriv --bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+setuid,+setgid,+kill,+sys_chroot"
)
"""What root in the chart's container of slurmd may do."""
ESCAPES: Final = """
(sleep 4001 &)
(setsid bash -c 'setsid sleep 4002 & exit' &)
(setsid env -i sleep 4003 &)
(setsid /lab/spool/unreadable 4004 &)
"""
"""Whose parents have ended; without their job's number; a program that its user cannot read."""
ESCAPED: Final = {"4001", "4002", "4003", "4004"}
NAMED: Final = {"4001", "4002"}
"""Those of which can be read that they have the number of their job."""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    nodes = NodeRange(count=3, first_port=0, cpus=32)
    with running_slurm(request.param, nodes=nodes, more=HOOKS) as slurm:
        yield slurm


def patient(*, kill: str) -> str:
    """Return the script, whose programs may take as long as they need; it kills with *kill*."""
    text = (FILES / "scripts/end-processes").read_text()
    for there, here in (
        ("kill -KILL", kill),
        ("--kill-after=1 1 ", "--kill-after=1 10 "),
        ("--kill-after=1 2 ", "--kill-after=1 10 "),
    ):
        assert there in text
        text = text.replace(there, here)
    return text


@pytest.fixture
def cluster(cluster: Cluster) -> Generator[Cluster]:
    slurm = cluster.slurm
    cluster.add_wrappers()
    epilog = (FILES / "scripts/epilog").read_text()
    limited = epilog.replace("bash /etc/sunk/scripts/end-processes", f"{LIMITED} bash /lab/etc/end-processes")
    assert limited != epilog
    for there, here in (("/etc/sunk/", "/lab/etc/"), ("/lab/etc/scripts/", "/lab/etc/")):
        limited = limited.replace(there, here)
    slurm.write_file("epilog", limited)
    slurm.write_file("end-processes", patient(kill="kill -KILL"))
    slurm.exec("install", "-m", "711", "/usr/bin/sleep", "/lab/spool/unreadable")
    yield cluster
    slurm.exec("scancel", f"--user={USER}")
    slurm.exec("bash", "-c", f"kill -KILL $(ps -U {USER} -o pid=); true")


def submit(cluster: Cluster, script: str) -> str:
    """Submit a job of the user, next to others on the first node, and return its number."""
    text = f"#!/bin/bash\nexec >/dev/null 2>&1 </dev/null\n{script}\n"
    cluster.slurm.write_file("job.sh", text)
    options = (f"--uid={USER}", "--mem=1", "-n1", "-w", cluster.first, "-o", "/dev/null", "-D", "/")
    return cluster.slurm.exec("sbatch", "--parsable", *options, "/lab/etc/job.sh").strip()


def running(cluster: Cluster) -> set[str]:
    """Return how long each of the user's programs that run is to sleep."""
    told = cluster.slurm.exec("bash", "-c", f"ps -U {USER} -o stat=,args= || true")
    return {line.split()[-1] for line in told.splitlines() if line.split()[-1].isdigit() and line[0] != "Z"}


def state(cluster: Cluster, job: str) -> str:
    return cluster.slurm.exec("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def test_what_a_job_leaves_running_ends_with_it_and_the_node_goes_on(cluster: Cluster) -> None:
    job = submit(cluster, f"{ESCAPES}\nuntil [[ -e /lab/spool/seen ]]; do sleep 0.1; done")
    until(lambda: running(cluster) >= ESCAPED)
    cluster.slurm.exec("touch", "/lab/spool/seen")

    until(lambda: state(cluster, job) == "COMPLETED")

    assert running(cluster) == set()
    cluster.until_idle()
    assert cluster.node(cluster.first) == (False, "")
    cluster.slurm.exec("rm", "/lab/spool/seen")


def test_another_job_of_the_user_keeps_its_processes_until_it_is_over(cluster: Cluster) -> None:
    other = submit(cluster, "(sleep 5001 &)\nsleep 5002")
    until(lambda: running(cluster) == {"5001", "5002"})
    job = submit(cluster, f"{ESCAPES}\nsleep 4000")
    until(lambda: running(cluster) == {"5001", "5002", "4000", *ESCAPED})

    cluster.slurm.exec("scancel", job)
    until(lambda: state(cluster, job) == "CANCELLED")
    left = running(cluster)
    cluster.slurm.exec("scancel", other)
    until(lambda: state(cluster, other) == "CANCELLED")

    assert left == {
        "5001",
        "5002",
        *ESCAPED - NAMED,
    }  # Whose those are, cannot be seen while both jobs are there.
    assert running(cluster) == set()
    cluster.until_idle()
    assert cluster.node(cluster.first) == (False, "")


def test_a_node_whose_process_does_not_end_is_drained_with_the_reason(cluster: Cluster) -> None:
    cluster.slurm.write_file("end-processes", patient(kill="true"))  # As one that waits for a GPU.

    job = submit(cluster, "(sleep 4001 &)\nsleep 1")
    until(lambda: state(cluster, job) == "COMPLETED")

    (pid,) = cluster.slurm.exec("pgrep", "-U", USER).split()
    reason = f"sunk: processes of job {job} (user {USER}) do not end: {pid}"
    assert cluster.node(cluster.first) == (True, reason)


@pytest.mark.parametrize(
    ("before", "is_the_syncers"),
    [("k8s: cordon", True), ("bad disk (verify-undrain)", False)],
    ids=["the syncer's", "an administrator's"],
)
def test_only_a_drain_that_the_syncer_would_lift_gets_the_reason_of_a_process_that_does_not_end(
    cluster: Cluster, before: str, *, is_the_syncers: bool
) -> None:
    cluster.slurm.write_file("end-processes", patient(kill="true"))
    job = submit(cluster, "(sleep 4001 &)\nsleep 1000")
    until(lambda: running(cluster) == {"4001", "1000"})
    cluster.slurm.exec("scontrol", "update", f"nodename={cluster.first}", "state=drain", f"reason={before}")

    cluster.slurm.exec("scancel", job)
    until(lambda: state(cluster, job) == "CANCELLED")

    is_drained, reason = cluster.node(cluster.first)
    assert is_drained
    ours = f"sunk: processes of job {job} (user {USER}) do not end: "
    assert reason.startswith(ours) if is_the_syncers else reason == before


def test_an_allocation_of_the_user_without_a_step_keeps_what_it_left(cluster: Cluster) -> None:
    as_user = f"cd / && setpriv --reuid={USER} --regid={USER} --clear-groups"
    allocate = f"{as_user} salloc --no-shell --mem=1 -n1 -w {cluster.first} 2>&1"
    other = cluster.slurm.exec("bash", "-c", allocate).split("allocation ")[1].split()[0]
    leave = "(setsid sleep 5001 >/dev/null 2>&1 </dev/null &)"
    cluster.slurm.exec("bash", "-c", f"{as_user} srun --jobid={other} --overlap bash -c '{leave}'")
    until(lambda: running(cluster) == {"5001"})
    job = submit(cluster, "(setsid sleep 5002 &)\nsleep 1000")
    until(lambda: running(cluster) == {"5001", "5002", "1000"})

    cluster.slurm.exec("scancel", job)
    until(lambda: state(cluster, job) == "CANCELLED")

    assert running(cluster) == {"5001"}
    cluster.slurm.exec("scancel", other)
    until(lambda: state(cluster, other) == "CANCELLED")
    assert running(cluster) == set()


def test_without_a_word_of_slurm_only_what_is_surely_of_the_job_ends_and_the_epilog_fails(
    cluster: Cluster,
) -> None:
    job = submit(cluster, "(setsid env -i sleep 6001 &)\n(sleep 6002 &)\nsleep 6000")
    until(lambda: running(cluster) == {"6000", "6001", "6002"})

    def epilog(number: str) -> str:
        env = f"SLURM_JOB_ID={number} SLURM_JOB_UID={USER} SLURMD_NODENAME={cluster.first}"
        script = f"{env} bash /lab/etc/end-processes 2>&1; echo status $?"
        return cluster.slurm.exec("bash", "-c", script, timeout_s=240)

    of_another = epilog(str(int(job) + 1))
    beside = running(cluster)
    cluster.slurm.freeze_daemon("slurmctld")
    try:
        cluster.slurm.exec(
            "bash", "-c", f"kill -KILL $(pgrep slurmstepd) $(pgrep -U {USER} -f 'script|6000')"
        )
        without_a_word = epilog(job)
    finally:
        cluster.slurm.thaw_daemon("slurmctld")

    assert (of_another, beside) == ("status 0\n", {"6000", "6001", "6002"})  # The other job has a step.
    assert "slurmctld does not say whether the user has another job" in without_a_word
    assert without_a_word.endswith("status 1\n")
    assert running(cluster) == {"6001"}
