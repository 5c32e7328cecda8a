"""prolog.sh and epilog.sh, started by a real slurmd, with a gateway that says what it is told to."""

import pytest

from sunk_hook_gateway.testing.cluster import Cluster, until
from sunk_hook_gateway.testing.scripted import ScriptedAnswer, ScriptedGateway, refusal

pytestmark = pytest.mark.lab

REASON = "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"


def test_a_job_starts_when_its_node_is_locked_and_its_epilog_gives_the_lock_back(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    job = cluster.submit("-w", cluster.first)

    until(lambda: cluster.job(job, "JobState") == "COMPLETED" and len(gateway.sent) == 2)
    assert cluster.has_run(job)
    assert [path for path, _, _ in gateway.sent] == [
        f"/v1/nodes/{cluster.first}/prehook",
        f"/v1/nodes/{cluster.first}/release",
    ]
    assert {token for _, token, _ in gateway.sent} == {"Bearer node-token"}


def test_a_refused_job_never_starts_and_its_node_is_drained_with_our_reason(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=True, hold=False)

    job = cluster.submit("-w", cluster.first)

    until(lambda: cluster.node(cluster.first) == (True, REASON))
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "PENDING"
    assert cluster.job(job, "Priority") != "0"  # Not held: another node may take it.
    assert cluster.node(cluster.first) == (True, REASON)


def test_a_job_of_two_nodes_never_starts_when_one_of_them_is_refused(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    gateway.by_path[f"/v1/nodes/{cluster.second}/prehook"] = refusal(drain=True, hold=False)

    job = cluster.submit("-w", f"{cluster.first},{cluster.second}")

    until(lambda: cluster.node(cluster.second) == (True, REASON))
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "PENDING"
    assert cluster.node(cluster.first) == (False, "")


def test_beyond_the_bound_the_job_is_held_and_no_node_drained(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=False, hold=True)

    job = cluster.submit("-w", cluster.first)

    until(lambda: cluster.job(job, "Priority") == "0")  # Held.
    until(lambda: cluster.job(job, "AdminComment") == "sunk:")  # Marked, with what follows.
    cluster.until_idle()
    assert cluster.job(job, "JobState") == "PENDING"
    assert not cluster.has_run(job)
    assert cluster.node(cluster.first)[0] is False


def test_a_job_that_may_not_be_requeued_is_cancelled(cluster: Cluster, gateway: ScriptedGateway) -> None:
    gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=True, hold=False)

    job = cluster.submit("--no-requeue", "-w", cluster.first)

    until(lambda: cluster.job(job, "JobState") == "CANCELLED")
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "CANCELLED"


def test_a_prolog_that_is_not_let_in_fails_and_its_job_never_starts(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = (401, {"error": "no"})

    job = cluster.submit("-w", cluster.first)

    own = "k8s: prolog pre-hook failed: the hook gateway answered HTTP 401 (sunk:verify-undrain)"
    until(lambda: cluster.node(cluster.first) == (True, own))
    cluster.until_idle()
    assert not cluster.has_run(job)
    assert cluster.job(job, "JobState") == "PENDING"
    assert cluster.node(cluster.first) == (True, own)


def test_a_job_that_is_cancelled_while_its_prolog_waits_stays_cancelled(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = refusal(drain=True, hold=False)
    gateway.may_answer.clear()
    job = cluster.submit("-w", cluster.first)
    until(lambda: bool(gateway.sent))

    cluster.slurm.exec("scancel", job)
    gateway.may_answer.set()
    cluster.until_idle()

    assert cluster.job(job, "JobState") == "CANCELLED"
    assert cluster.node(cluster.first)[0] is False


def test_the_clusters_own_prolog_runs_on_a_locked_node_only(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    cluster.add_own_prolog()
    locked = cluster.submit("-w", cluster.first)
    until(lambda: cluster.has_run(locked))
    cluster.until_idle()
    gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = (200, {"locked": False, "state": "CANCELLED"})
    gateway.may_answer.clear()
    gateway.sent.clear()
    cancelled = cluster.submit("-w", cluster.first)
    until(lambda: bool(gateway.sent))

    cluster.slurm.exec("scancel", cancelled)
    gateway.may_answer.set()
    cluster.until_idle()

    assert cluster.has_prepared(locked)
    assert not cluster.has_prepared(cancelled)
    assert cluster.job(cancelled, "JobState") == "CANCELLED"
    assert cluster.node(cluster.first)[0] is False


@pytest.mark.parametrize(
    ("answer", "options", "state"),
    [
        pytest.param(refusal(drain=True, hold=False), (), "PENDING", id="the node is drained"),
        pytest.param(refusal(drain=False, hold=True), (), "PENDING", id="the job is held"),
        pytest.param(refusal(drain=True, hold=False), ("--no-requeue",), "CANCELLED", id="it is cancelled"),
        pytest.param((401, {"error": "no"}), (), "PENDING", id="the prolog is not let in"),
    ],
)
def test_the_clusters_own_prolog_does_not_run_where_the_lock_is_refused(
    cluster: Cluster, gateway: ScriptedGateway, answer: ScriptedAnswer, options: tuple[str, ...], state: str
) -> None:
    cluster.add_own_prolog()
    gateway.by_path[f"/v1/nodes/{cluster.first}/prehook"] = answer

    job = cluster.submit("-w", cluster.first, *options)

    until(lambda: bool(gateway.sent))
    cluster.until_idle()
    assert cluster.job(job, "JobState") == state
    assert not cluster.has_prepared(job)
    assert not cluster.has_run(job)


def test_a_node_stays_completing_while_the_placeholders_pod_is_there(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    path = f"/v1/nodes/{cluster.first}/release"
    gateway.by_path[path] = (202, {"gone": False})
    job = cluster.submit("-w", cluster.first)

    until(lambda: len([sent for sent in gateway.sent if sent[0] == path]) > 3)
    assert "COMPLETING" in cluster.slurm.exec("scontrol", "-o", "show", "node", cluster.first)

    gateway.by_path.clear()
    cluster.until_idle()
    assert cluster.job(job, "JobState") == "COMPLETED"


def test_a_job_of_three_nodes_waits_for_the_slowest_of_them(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    slow = f"/v1/nodes/{cluster.third}/prehook"
    gateway.by_path[slow] = (503, {"retry": True})

    job = cluster.submit("-N3")

    until(lambda: [path for path, _, _ in gateway.sent].count(slow) > 3)
    assert len({path for path, _, _ in gateway.sent}) == 3
    assert not cluster.has_run(job)
    gateway.by_path.clear()
    until(lambda: cluster.job(job, "JobState") == "COMPLETED")
    assert cluster.has_run(job)


@pytest.mark.nightly  # Both clients take up to a minute to hear of it.
@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_what_waits_for_a_refused_node_ends_and_has_run_nothing(
    cluster: Cluster, gateway: ScriptedGateway, command: str
) -> None:
    gateway.by_path[f"/v1/nodes/{cluster.second}/prehook"] = refusal(drain=True, hold=False)

    line = f"{command} -w {cluster.first},{cluster.second} -N2 touch /lab/spool/{command}; echo ended=$?"
    told = cluster.slurm.exec("bash", "-c", line, timeout_s=120)

    assert "ended=0" not in told
    assert command not in cluster.slurm.exec("ls", "/lab/spool").split()
    assert cluster.node(cluster.second) == (True, REASON)
    assert cluster.node(cluster.first) == (False, "")


def test_each_task_of_an_array_asks_for_its_lock_and_gives_it_back(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    job = cluster.submit("--array=1-4", "--exclusive")

    def called(hook: str) -> set[object]:
        return {body["job"] for path, _, body in gateway.sent if path.endswith(hook)}

    until(lambda: len(called("prehook")) == len(called("release")) == 4)
    assert int(job) in called("prehook")
    assert called("prehook") == called("release")


def test_scripts_do_without_curl(cluster: Cluster, gateway: ScriptedGateway) -> None:
    cluster.slurm.exec("mkdir", "-p", "/lab/etc/few")
    for name in ("bash", "cat", "sleep", "timeout", "scontrol", "scancel"):
        cluster.slurm.exec("ln", "-sf", f"/usr/bin/{name}", f"/lab/etc/few/{name}")
    cluster.configure("PATH=/lab/etc/few\n")
    gateway.by_path[f"/v1/nodes/{cluster.second}/prehook"] = refusal(drain=True, hold=False)

    job, refused = cluster.submit("-w", cluster.first), cluster.submit("-w", cluster.second)

    until(lambda: cluster.job(job, "JobState") == "COMPLETED")
    until(lambda: cluster.node(cluster.second) == (True, REASON))
    cluster.until_idle()
    assert cluster.has_run(job)
    assert not cluster.has_run(refused)
    assert f"/v1/nodes/{cluster.first}/release" in {path for path, _, _ in gateway.sent}


def test_a_check_finds_nothing_in_a_good_slurm_conf_and_says_what_a_bad_deadline_needs(
    cluster: Cluster,
) -> None:
    check = ("env", "SUNK_HOOKS_ENV=/lab/etc/hooks.env", "/lab/etc/check.sh", "wait")
    assert cluster.slurm.exec(*check) == ""
    cluster.configure("SUNK_HOOKS_DEADLINE_S=21\n")

    told = cluster.slurm.exec("bash", "-c", f"{' '.join(check)} || true")

    assert "sunk check: PrologEpilogTimeout=50: Slurm ends a prolog before its deadline:" in told
    assert "set PrologEpilogTimeout=51" in told
    assert "AuthInfo" not in told

    cluster.configure("SUNK_HOOKS_DEADLINE_S=61\n")
    told = cluster.slurm.exec("bash", "-c", f"{' '.join(check)} || true")

    assert "sunk check: AuthInfo=ttl=120,cred_expire=120: a job that waits long for its lock fails" in told
    assert "set AuthInfo=ttl=121,cred_expire=121" in told
