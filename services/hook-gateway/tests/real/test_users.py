"""What users write into their jobs decides nothing, and who waits at a terminal is told: on a real Slurm."""

import json
import shlex
from collections.abc import Generator

import pytest

from sunk_hook_gateway.testing.cluster import HOOKS, WRAPPED, Cluster, until
from sunk_hook_gateway.testing.scripted import ScriptedGateway, refusal
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm

pytestmark = pytest.mark.lab

REASON = "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
TEXT_MAX = 1000
"""Slurm takes little more of a name or a comment."""
LONG = 64 * 1024
"""An environment may have so much."""
LIES = (
    "JobState=COMPLETED",
    "x JobState=COMPLETED Requeue=0 BatchFlag=0 BatchHost=nowhere NodeList=x JobId=1 JobState=CANCELLED ",
    "x\nJobId=1 JobState=COMPLETED\n1|1|N/A|COMPLETED|1|1|node01|\nslurm_load_jobs error: Invalid job id",
    '"}],"components":[],"level":"normal","x":{"$(touch /lab/spool/pwned)`touch /lab/spool/pwned`\';\\',
)
MUCH = LIES[1] * (LONG // len(LIES[1]))
ENVIRONMENT = (
    "ALL",
    "JobState=COMPLETED",
    "IFS=|",
    "SLURM_JOB_ID=1",
    "SLURM_JOB_NODELIST=nowhere",
    "SLURMD_NODENAME=nowhere",
    "SPANK_SUNK_HOOKS_URL=http://127.0.0.1:9",
    "SUNK_HOOKS_URL=http://127.0.0.1:9",
    "BASH_ENV=/lab/spool/pwned",
    "LD_PRELOAD=/lab/spool/pwned",
    f"MUCH={MUCH}",
)
"""What a job's user sets, and no prolog may read."""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    nodes = NodeRange(count=3, first_port=0, cpus=32)
    with running_slurm(request.param, nodes=nodes, more=(*HOOKS, *WRAPPED)) as slurm:
        yield slurm


def states(cluster: Cluster, job: str) -> dict[str, str]:
    """Return the state of each task or component of *job* that slurmctld knows."""
    rows = cluster.slurm.exec("squeue", "-h", "-r", "-t", "all", "-j", job, "-O", "JobArrayID:|,State:|")
    return {row.split("|")[0]: row.split("|")[1] for row in rows.split()}


def prehook(node: str) -> str:
    return f"/v1/nodes/{node}/prehook"


@pytest.mark.parametrize("lie", LIES, ids=["a state", "all fields", "lines", "code"])
def test_a_job_whose_words_say_that_it_is_over_is_refused_like_any_other(
    cluster: Cluster, gateway: ScriptedGateway, lie: str
) -> None:
    gateway.by_path[prehook(cluster.first)] = refusal(drain=True, hold=False)
    cluster.slurm.exec("mkdir", "-p", f"/lab/spool/{lie.replace('/', '_')[:200]}")
    # Administrators write that, and drains still have to see what is.
    cluster.slurm.exec("scontrol", "update", f"nodename={cluster.first}", f"comment={lie} State=IDLE+DRAIN")

    job = cluster.submit(
        *("-w", cluster.first, f"--job-name={lie}", f"--comment={lie}", f"--extra={lie}", f"--wckey={lie}"),
        *(f"--chdir=/lab/spool/{lie.replace('/', '_')[:200]}", f"--export={','.join(ENVIRONMENT)}"),
    )

    until(lambda: cluster.node(cluster.first) == (True, REASON))
    cluster.until_idle()
    assert states(cluster, job) == {job: "PENDING"}
    assert not cluster.has_run(job)
    assert "pwned" not in cluster.slurm.exec("ls", "/lab/spool").split()


SOURCED = "/lab/spool/sourced"
STARTED = ("ALL", "JobState=COMPLETED", "IFS=|", "SLURM_JOB_UID=1", "SUNK_HOOKS_SCRIPTS_S=0", "TMPDIR=/")
"""What a user sets in a job that is to run."""


@pytest.mark.parametrize("lie", LIES, ids=["a state", "all fields", "lines", "code"])
def test_the_charts_scripts_do_what_they_always_do_whatever_a_job_that_starts_is_called(
    cluster: Cluster, gateway: ScriptedGateway, lie: str
) -> None:
    cluster.add_wrappers()
    cluster.slurm.exec("rm", "-f", SOURCED)
    cluster.slurm.write_file("sourced", f'echo "$0" >>{SOURCED}\n')
    feature = "JobState=COMPLETED"
    features = (f"AvailableFeatures={feature}", f"ActiveFeatures={feature}")
    cluster.slurm.exec("scontrol", "update", f"nodename={cluster.first}", *features)
    folder = f"/lab/spool/{lie.replace('/', '_')[:200]}"
    cluster.slurm.exec("mkdir", "-p", folder)
    told = 'echo "$TMPDIR" >/lab/spool/told-$SLURM_JOB_ID'

    job = cluster.slurm.exec(
        *("sbatch", "--parsable", "-o", "/dev/null", "-w", cluster.first, f"--constraint={feature}"),
        *(f"--job-name={lie}", f"--comment={lie}", f"--extra={lie}", f"--wckey={lie}", f"--chdir={folder}"),
        *(f"--export={','.join((*STARTED, 'BASH_ENV=/lab/etc/sourced'))}", "--wrap", told),
    ).strip()

    until(lambda: states(cluster, job) == {job: "COMPLETED"})
    cluster.until_idle()
    (body, *_) = (body for path, _, body in gateway.sent if path == prehook(cluster.first))
    assert body["job"] == int(job)
    assert (f"/v1/nodes/{cluster.first}/release", {"job": int(job)}) in [(p, b) for p, _, b in gateway.sent]
    there = cluster.slurm.exec("ls", "-A", "/lab/spool").split()
    assert {f"prolog-{job}", f"epilog-{job}"} <= set(there)
    assert "pwned" not in there
    tmpdir = cluster.slurm.exec("cat", f"/lab/spool/told-{job}").strip()
    assert tmpdir == f"/lab/spool/scratch/job-{job}"
    scratch = cluster.slurm.exec("ls", "-A", "/lab/spool/scratch").split()
    assert [name for name in scratch if name.startswith(("job-", f".gone-{job}-"))] == [
        name for name in scratch if name.startswith(f".gone-{job}-")
    ]
    # The user's own programs read his BASH_ENV: of ours only what runs as the user, beside the job.
    read = set(cluster.slurm.exec("cat", SOURCED).split())
    assert not read & {f"/lab/etc/{name}" for name in ("prolog", "epilog", "prolog.sh", "epilog.sh")}
    assert not [name for name in read if "traced" in name]
    assert cluster.node(cluster.first)[0] is False


@pytest.mark.parametrize("lie", LIES, ids=["a state", "all fields", "lines", "code"])
def test_a_reboot_is_asked_for_and_nothing_else_happens_whatever_its_reason_says(
    cluster: Cluster, gateway: ScriptedGateway, lie: str
) -> None:
    cluster.add_wrappers()
    node = cluster.third
    cluster.slurm.exec("scontrol", "reboot", "ASAP", f"reason={lie}", node)
    try:
        until(lambda: bool(gateway.sent))
        # slurmd tells its RebootProgram no name, and the host is the node's Pod; here all nodes have one.
        host = cluster.slurm.exec("cat", "/proc/sys/kernel/hostname").strip()
        assert [(path, body) for path, _, body in gateway.sent] == [(f"/v1/nodes/{host}/reboot", {})]
        assert "pwned" not in cluster.slurm.exec("ls", "/lab/spool").split()
    finally:
        cluster.slurm.exec("scontrol", "update", f"nodename={node}", "state=down", "reason=back")
        cluster.slurm.exec("scontrol", "update", f"nodename={node}", "state=resume")


@pytest.mark.parametrize("lie", LIES, ids=["a state", "all fields", "lines", "code"])
def test_a_component_whose_words_say_that_it_is_over_is_waited_for(
    cluster: Cluster, gateway: ScriptedGateway, lie: str
) -> None:
    options = [
        f"-N1 -w {node} -J {shlex.quote(lie)} --comment={shlex.quote(lie)}"
        for node in cluster.slurm.node_names[:2]
    ]
    job = cluster.slurm.exec(
        "bash",
        "-c",
        f"sbatch --parsable -o/dev/null {options[0]} : {options[1]}"
        " --wrap 'touch /lab/spool/ran-$SLURM_JOB_ID'",
    ).strip()

    until(lambda: cluster.has_run(job))
    (body,) = (body for path, _, body in gateway.sent if path == prehook(cluster.first))
    assert body["components"] == [{"job": int(job) + 1, "nodes": cluster.second}]
    assert json.dumps(body).isascii()


def test_the_prologs_and_epilogs_that_a_user_gives_srun_run_as_that_user(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    folder, user = "/lab/spool/by-users", "1"
    cluster.slurm.exec("install", "-d", "-m", "1777", folder)
    cluster.slurm.write_file("of-a-user", f"#!/bin/bash\nid -u >>{folder}/$$\n")
    times = ("prolog", "epilog", "task-prolog", "task-epilog")
    step = " ".join(("srun", *(f"--{when}=/lab/etc/of-a-user" for when in times), "true"))
    as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")

    batch = ("sbatch", "--parsable", "--chdir=/", "-o", "/dev/null", "-w", cluster.first, "--wrap", step)
    job = cluster.slurm.exec(*as_user, *batch).strip()

    until(lambda: states(cluster, job) == {job: "COMPLETED"})
    cluster.until_idle()
    ran = cluster.slurm.exec("bash", "-c", f"cat {folder}/*").split()
    assert (len(ran), set(ran)) == (4, {user})
    assert [path for path, _, _ in gateway.sent if path == prehook(cluster.first)]


def test_a_job_with_more_words_than_a_message_of_ours_has_is_refused_like_any_other(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    gateway.by_path[prehook(cluster.first)] = refusal(drain=False, hold=False)
    some = MUCH[:TEXT_MAX]

    job = cluster.submit(
        *("-w", cluster.first, f"--comment={some}", f"--extra={some}", f"--job-name={some}"),
        f"--export=ALL,MUCH={MUCH}",
    )

    # A job has a reason before its start too, as long as its node was drained by the test before.
    until(lambda: any(path == prehook(cluster.first) for path, _, _ in gateway.sent))
    until(lambda: cluster.slurm.exec("squeue", "-h", "-t", "all", "-j", job, "-o", "%r").strip() != "None")
    cluster.until_idle()
    assert states(cluster, job) == {job: "PENDING"}
    assert not cluster.has_run(job)
    (body, *_) = (body for path, _, body in gateway.sent if path == prehook(cluster.first))
    assert len(json.dumps(body)) < 1000


def test_the_refusal_of_an_arrays_last_task_changes_no_other_task(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    # The last task has the array's id and no room on the first node.
    gateway.by_path[prehook(cluster.second)] = refusal(drain=True, hold=False)
    cluster.slurm.exec("scontrol", "update", f"nodename={cluster.third}", "state=drain", "reason=test")
    job = cluster.slurm.exec(
        *("sbatch", "--parsable", "-o", "/dev/null", "--array=1-20", "-n1", "-c2", "--mem=1"),
        *("-w", cluster.first, "--wrap", "sleep 600"),
    ).strip()
    others = {f"{job}_{task}": "RUNNING" for task in range(1, 17)}
    until(lambda: list(states(cluster, job).values()).count("RUNNING") == 16)
    assert {one: state for one, state in states(cluster, job).items() if one in others} == others
    gone = [f"{job}_{task}" for task in (17, 18, 19)]
    cluster.slurm.exec("scancel", *gone)

    cluster.slurm.exec("scontrol", "update", f"jobid={job}_20", f"nodelist={cluster.second}")
    until(lambda: cluster.node(cluster.second) == (True, REASON))
    until(lambda: states(cluster, job).get(f"{job}_20") == "PENDING")

    assert job in {str(body["job"]) for path, _, body in gateway.sent if path == prehook(cluster.second)}
    assert {one: state for one, state in states(cluster, job).items() if one in others} == others


@pytest.mark.parametrize("drain", [True, False], ids=["drained", "not drained"])
@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_who_waits_at_a_terminal_is_told_why_the_job_is_cancelled(
    cluster: Cluster, gateway: ScriptedGateway, command: str, *, drain: bool
) -> None:
    gateway.by_path[prehook(cluster.first)] = refusal(drain=drain, hold=not drain)

    line = f"{command} -w {cluster.first} touch /lab/spool/ran-{command}; echo ended=$?"
    told = cluster.slurm.exec("bash", "-c", f"({line}) 2>&1", timeout_s=120)

    assert "ended=0" not in told
    assert f"is cancelled, please start it again: {REASON}" in told
    assert not cluster.has_run(command)
    cluster.until_idle()
    assert cluster.node(cluster.first) == ((True, REASON) if drain else (False, ""))
    shown = cluster.slurm.exec("squeue", "-h", "-t", "all", "-O", "State:|,BatchFlag:|").split()
    assert {row for row in shown if row.endswith("|0|")} == {"CANCELLED|0|"}
