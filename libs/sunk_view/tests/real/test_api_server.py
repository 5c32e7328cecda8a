"""The view behind a real API server, with the chart's own objects, on a real NATS with its users."""

import json
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from sunk_ctl.testing import (
    RIGHTS,
    ViewStage,
    bus_settings,
    have_syncer_lead,
    kubeconfig_of_account,
    nats_with_users,
    sunkctl,
    ui,
    view_stage,
)
from sunk_events import subjects
from sunk_events.base import Event, Reply, State, event_id
from sunk_events.codec import encode
from sunk_events.jobs import JobSnapshot, JobStarted, SlurmJobState
from sunk_events.locks import LockHolder, LockPending, LockSnapshot, LockState
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import PlacementBound, PlacementSnapshot, PlacementState
from sunk_events.requests import (
    ExplainJob,
    ExplainKubeNode,
    ExplainSlurmNode,
    Explanation,
    Finding,
    Refused,
)
from sunk_events.view import HIDDEN, ROOT, TABLES
from sunk_kube.wellknown import ANNOTATION_CORDON_REASON
from sunk_lab.nats import NatsServer
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_runtime.http_pages import HEADERS
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.requests import answering
from sunk_view import openapi, page_files, positions

pytestmark = pytest.mark.lab

COMPLETER = Path(__file__).parents[3] / "sunk_ctl/kubectl_complete-sunk"
AGO = datetime.now(UTC) - timedelta(minutes=5)
# After the tests, so that no answer looks old however long after this module's import they run.
FRESH = AGO + timedelta(days=1)
UIDS = {team: f"00000000-0000-4000-8000-00000000000{team}" for team in "ab"}
PEOPLE = ("alice", "bob", "carol", "dave", "erin", "frank")
# Kubernetes' own role `view` gets its rules of a controller, which does not run here.
BINDINGS = (
    RIGHTS
    + """---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: team-b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-pods}
subjects: [{kind: User, name: bob, apiGroup: rbac.authorization.k8s.io}]
---
# As `sunkctl` names it in a refusal.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operates-nodes}
rules: [{apiGroups: [""], resources: [nodes, nodes/status], verbs: [get, list, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: erin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operates-nodes}
subjects: [{kind: User, name: erin, apiGroup: rbac.authorization.k8s.io}]
---
# Who may get one Pod learns nothing of others, near names among that.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads-one, namespace: team-a}
rules: [{apiGroups: [""], resources: [pods], resourceNames: [trian], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: one, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads-one}
subjects: [{kind: User, name: erin, apiGroup: rbac.authorization.k8s.io}]
"""
)
NODES = """
apiVersion: v1
kind: Node
metadata:
  name: node1
  labels: {sunk.coreweave.com/pod: d1, sunk.coreweave.com/cluster: c1, sunk.coreweave.com/nodeset: gpu}
---
apiVersion: v1
kind: Node
metadata:
  name: node2
  labels: {sunk.coreweave.com/pod: d2, sunk.coreweave.com/cluster: c1, sunk.coreweave.com/nodeset: gpu}
---
apiVersion: v1
kind: Node
metadata: {name: node3}
"""


def states() -> list[tuple[str, State]]:
    """Return states as the services write them: two teams' Pods wait, one for a lock on d1."""
    return [
        (
            "d1",
            SlurmNodeState(
                changed=AGO,
                node="d1",
                state="IDLE",
                is_drain=True,
                reason="k8s: cordoned",
                reason_changed=AGO,
            ),
        ),
        ("d2", SlurmNodeState(changed=AGO, node="d2", state="ALLOCATED", is_busy=True)),
        (
            "d1",
            KubePodState(
                changed=AGO,
                pod="d1",
                namespace="slurm",
                nodeset="gpu",
                kube_node="node1",
                phase="running",
                is_cordoned=True,
            ),
        ),
        (
            "d2",
            KubePodState(
                changed=AGO,
                pod="d2",
                namespace="slurm",
                nodeset="gpu",
                kube_node="node2",
                phase="running",
                is_cordoned=True,
            ),
        ),
        (
            "d1",
            LockState(
                changed=AGO,
                node="d1",
                kube_node="node1",
                lock="pending",
                holders=(LockHolder(job=11, level="strict"),),
                in_the_way=("team-b/web",),
            ),
        ),
        (
            "11",
            SlurmJobState(changed=AGO, job=11, state="RUNNING", is_running=True, reason="Prolog", nodes="d1"),
        ),
        ("12", SlurmJobState(changed=AGO, job=12, state="PENDING", reason="Resources", name="\x1b[31mred")),
        (
            UIDS["a"],
            PlacementState(
                changed=AGO,
                uid=UIDS["a"],
                namespace="team-a",
                pod="train",
                phase="released",
                job=11,
                created=AGO,
            ),
        ),
        (
            UIDS["b"],
            PlacementState(changed=AGO, uid=UIDS["b"], namespace="team-b", pod="web", phase="bound", job=12),
        ),
        (
            subjects.STATISTICS_KEY,
            SlurmStatisticsState(changed=AGO, nodes_answered=FRESH, jobs_answered=FRESH),
        ),
        (subjects.LEADER_KEY, KubeWatchState(changed=FRESH, seen=FRESH)),
    ]


async def explain_job(question: ExplainJob) -> Reply:
    if question.job not in (11, 12):
        return Refused(code="unknown_job", reason=f"Slurm has no job {question.job}, or no longer")
    because = "waits for Pods to leave: d1: team-b/web"
    place = Finding(what="place 2 of 2 in the queue of gpu", because="ahead: job 41 of ada (Resources)")
    return Explanation(findings=(Finding(what="its prologs run", because=because), place))


async def explain_node(question: ExplainSlurmNode) -> Reply:
    if question.node != "d1":
        return Refused(code="unknown_node", reason=f"Slurm has no node {question.node}")
    return Explanation(findings=(Finding(what="drained: k8s: cordoned"),))


async def explain_kube_node(question: ExplainKubeNode) -> Reply:
    if question.node != "d1":
        return Refused(code="unknown_node", reason=f"no NodeSet has node {question.node}")
    return Explanation(
        findings=(Finding(what="not locked for job 11 yet", because="team-b/web: in the way"),)
    )


@asynccontextmanager
async def services(server: NatsServer, folder: Path) -> AsyncGenerator[Bus]:
    """Write the states, and answer as the services do, as their users of NATS."""

    def named(user: str) -> Any:  # noqa: ANN401 - a context manager
        return connect(bus_settings(server, folder, user), user)

    async with (
        named("admin") as admin,
        named("syncer-c1") as syncer,
        named("nodeset-controller") as controller,
    ):
        await write(admin)
        async with (
            answering(syncer, "c1", ExplainJob, explain_job),
            answering(syncer, "c1", ExplainSlurmNode, explain_node),
            answering(controller, "c1", ExplainKubeNode, explain_kube_node),
        ):
            yield admin


async def publish(bus: Bus, event: Event) -> None:
    await bus.publish(subjects.fact("c1", event), encode(event), msg_id=event.id)


def drained(number: int, reason: str = "k8s: cordoned") -> NodeDrained:
    """Return a fact about d1."""
    return NodeDrained(
        id=event_id("node_drained", "d1", number),
        source="/c1/syncer",
        subject="d1",
        time=AGO,
        data=NodeSnapshot(node="d1", state="IDLE", flags=("DRAIN",), reason=reason),
    )


def bound(team: str, pod: str) -> PlacementBound:
    """Return a fact about a Pod that Slurm places."""
    uid = UIDS[team[-1]]
    data = PlacementSnapshot(uid=uid, namespace=team, pod=pod, job=11, node="d1", kube_node="node1")
    return PlacementBound(
        id=event_id("placement_bound", uid), source="/c1/pod-scheduler", subject=uid, time=AGO, data=data
    )


def facts() -> list[Event]:
    """Return what happened, in this order."""
    lock = LockSnapshot(node="d1", kube_node="node1", lock="pending", jobs=(11,), in_the_way=("team-b/web",))
    job = JobSnapshot(job=11, state="RUNNING", name="team-b/web", user="ada", nodes="d1")
    return [
        drained(0, "\x1b[2Jred"),
        bound("team-a", "train"),
        bound("team-b", "web"),
        LockPending(
            id="lock_pending:d1:1", source="/c1/nodeset-controller", subject="d1", time=AGO, data=lock
        ),
        JobStarted(id="job_started:11:1", source="/c1/syncer", subject="11", time=AGO, data=job),
    ]


async def write(bus: Bus) -> None:
    await bus.provision("c1", BusSettings())
    for fact in facts():
        await publish(bus, fact)
    for key, state in states():
        bucket = subjects.bucket("c1", type(state))
        await bus.publish(subjects.key_subject(bucket, key), encode(state))
    await have_syncer_lead(bus)


@dataclass(frozen=True)
class Stage(ViewStage):
    """With the bus behind the view."""

    server: NatsServer
    bus: Bus
    portal: BlockingPortal

    def publish(self, event: Event) -> None:
        """Publish a fact, as its service does."""
        self.portal.call(publish, self.bus, event)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    folder = tmp_path_factory.mktemp("view")
    # So that no machine is too slow to ask too often.
    settings = {"RATE_PER_S": 0.05, "BURST": 40}
    with (
        reserved_lab() as lab,
        nats_with_users(folder) as server,
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(services(server, folder)) as admin,
        view_stage(
            lab, server, folder, people=PEOPLE, objects=BINDINGS + "---" + NODES, settings=settings
        ) as view,
    ):
        found = Stage(lab, folder, view.pid, view.port, server, admin, portal)
        wait_for("the APIService", lambda: found.get("carol", "/status")[0] == 200)
        yield found


def test_each_of_two_users_explains_the_own_pod_and_not_the_others(stage: Stage) -> None:
    own = stage.get("alice", "/namespaces/team-a/pods/train/explain")
    others = stage.get("alice", "/namespaces/team-b/pods/web/explain")
    theirs = stage.get("bob", "/namespaces/team-b/pods/web/explain")
    back = stage.get("bob", "/namespaces/team-a/pods/train/explain")

    assert (own[0], theirs[0]) == (200, 200)
    assert own[1]["parts"][0]["findings"][0]["what"] == "job 11 waits for its turn in Slurm"
    assert (others[0], back[0]) == (403, 403)
    assert others[1]["message"] == (
        "user alice may not get pods web in namespace team-b: ask an administrator for that right, "
        "such as the ClusterRole view in that namespace"
    )


def test_an_explanation_does_not_name_pods_of_namespaces_that_the_caller_may_not_read(stage: Stage) -> None:
    _, hidden = stage.get("alice", "/namespaces/team-a/pods/train/explain")
    _, lock = stage.get("carol", "/locks")
    _, shown = stage.get("admin", "/locks")

    assert "team-b" not in json.dumps(hidden)
    assert hidden["parts"][1]["findings"][0]["because"] == f"waits for Pods to leave: d1: {HIDDEN}"
    assert lock["items"][0]["in_the_way"] == [HIDDEN]
    assert shown["items"][0]["in_the_way"] == ["team-b/web"]


def test_a_pods_owner_does_not_learn_whose_jobs_are_ahead_and_an_administrator_does(stage: Stage) -> None:
    _, hidden = stage.get("alice", "/namespaces/team-a/pods/train/explain")
    _, shown = stage.get("admin", "/namespaces/team-a/pods/train/explain")

    assert hidden["parts"][1]["findings"][1]["what"] == "place 2 of 2 in the queue of gpu"
    assert "ada" not in json.dumps(hidden)
    assert shown["parts"][1]["findings"][1]["because"] == "ahead: job 41 of ada (Resources)"


def test_what_belongs_to_no_namespace_needs_the_cluster_role_of_the_chart(stage: Stage) -> None:
    for path in (
        "/status",
        "/jobs",
        "/jobs/11/explain",
        "/locks",
        "/placements",
        "/nodes",
        "/nodes/d1/explain",
    ):
        assert (path, stage.get("carol", path)[0]) == (path, 200)
        status, answer = stage.get("dave", path)
        assert (path, status) == (path, 403)
        assert answer["kind"] == "Status"


def test_a_caller_cannot_name_another_user(stage: Stage) -> None:
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    direct = f"https://127.0.0.1:{stage.port}{ROOT}/status"

    through = stage.get("dave", "/status", forged)
    stranger = ssl.create_default_context()
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    with (
        httpx.Client(verify=stranger, trust_env=False, timeout=60) as client,
        pytest.raises(httpx.TransportError),
    ):
        client.get(direct, headers=forged)
    stranger.load_cert_chain(stage.authority.crt("dave"), stage.authority.key("dave"))
    with httpx.Client(verify=stranger, trust_env=False, timeout=60) as client:
        with_own_certificate = client.get(direct, headers=forged)

    assert through[0] == 403
    assert with_own_certificate.status_code == 401
    assert with_own_certificate.json()["message"] == "'dave' is not the Kubernetes API server's front proxy"


def test_status_is_one_screen_of_what_the_bus_says(stage: Stage) -> None:
    _, answer = stage.get("admin", "/status")

    (cluster,) = answer["clusters"]
    assert cluster["nodes"] == {"allocated": 1, "drained": 1}
    assert cluster["drains"][0]["reason"] == "k8s: cordoned"
    assert cluster["pending_locks"][0]["in_the_way"] == ["team-b/web"]
    assert cluster["waits"] == {"Resources": 1}
    assert cluster["placements"] == {"bound": 1, "released": 1}
    assert {row["service"]: row["leader"] for row in cluster["services"]}["syncer"] == "syncer-0"


def test_status_names_leaders_by_leases_that_it_may_read(stage: Stage) -> None:
    _, answer = stage.get("admin", "/status")

    services = {row["service"]: row for row in answer["clusters"][0]["services"]}
    assert services["nodeset-controller"]["leader"] == "controller-1"
    assert "pod-scheduler" not in services  # The right to read that one comes with helm/slurm.


def test_what_is_not_there_is_named_with_what_is_near(stage: Stage) -> None:
    _, node = stage.get("admin", "/nodes/d11/explain")
    _, pod = stage.get("alice", "/namespaces/team-a/pods/trian/explain")

    assert (node["parts"], node["near"]) == ([], ["d1"])
    assert (pod["is_unknown"], pod["near"]) == (True, ["train"])


def test_a_user_who_asks_without_end_waits_and_others_do_not(stage: Stage) -> None:
    path = "/namespaces/team-a/pods/train/explain"
    found = (stage.get("frank", path)[0] for _ in range(60))

    assert 429 in found
    assert stage.get("alice", path)[0] == 200


def test_sunkctl_explains_the_own_pod_and_says_what_to_do_about_the_others(stage: Stage) -> None:
    own = stage.sunkctl("alice", "explain", "pod", "train", "-n", "team-a")
    others = stage.sunkctl("alice", "explain", "pod", "team-b/web")
    mistyped = stage.sunkctl("alice", "explain", "pod", "team-a/trian")
    far = stage.run("alice", "explain", "pod", "team-a/nothing-like-it")
    gang = stage.run("alice", "explain", "gang", "team-a/nothing-like-it", "-o", "json")
    hidden = stage.run("erin", "explain", "pod", "team-a/trian")
    wide = stage.sunkctl("dave", "status")

    assert (own.returncode, own.stderr) == (0, "")
    assert "job 11 waits for its turn in Slurm, for " in own.stdout
    assert f"because: waits for Pods to leave: d1: {HIDDEN}" in own.stdout
    assert (others.returncode, others.stdout) == (3, "")
    assert "user alice may not get pods web in namespace team-b" in others.stderr
    assert (mistyped.returncode, "did you mean train?" in mistyped.stderr) == (4, True)
    assert (far.exit_code, far.stderr) == (4, "sunkctl: no pod team-a/nothing-like-it is known\n")
    assert "Slurm does not place nothing-like-it" in far.stdout
    assert (hidden.exit_code, hidden.stderr) == (4, "sunkctl: no pod team-a/trian is known\n")
    assert (gang.exit_code, json.loads(gang.stdout)["is_unknown"]) == (4, True)
    assert wide.returncode == 3
    assert "--clusterrole=sunk-view --user=USER" in wide.stderr


def test_kubectl_finds_its_plugin_in_the_path_and_hands_words_and_kubeconfig_on(stage: Stage) -> None:
    environment = stage.environment("alice")
    plugin = Path(sys.executable).parent
    found = subprocess.run(
        [stage.lab.programs / "kubectl", "sunk", "explain", "pod", "train", "--namespace", "team-a"],
        env={**environment, "PATH": f"{plugin}:{environment['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert (found.returncode, found.stderr) == (0, "")
    assert "job 11 waits for its turn in Slurm, for " in found.stdout


def test_kubectl_completes_commands_options_and_nothing_else_of_its_plugin(stage: Stage) -> None:
    environment = stage.environment("alice")
    folders = (Path(sys.executable).parent, COMPLETER.parent, environment["PATH"])

    def completed(*words: str) -> list[str]:
        command = [stage.lab.programs / "kubectl", "__complete", "sunk", *words]
        path = ":".join(map(str, folders))
        return subprocess.run(
            command,
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        ).stdout.splitlines()

    assert completed("dr") == ["drain", ":4"]
    assert {"explain", "events", "status", "undrain"} <= {*completed("")}
    assert {"--node", "--pod", "--follow"} <= {*completed("events", "--")}
    assert completed("explain", "po") == ["pod", ":4"]
    assert completed("explain", "pod", "") == [":4"]
    assert "--any" in completed("undrain", "n1", "--reason", "bob's bad  fan", "--a")


def test_sunkctl_shows_the_whole_to_an_administrator_and_no_control_character(stage: Stage) -> None:
    shown = {word: stage.sunkctl("admin", word) for word in ("status", "nodes", "jobs", "locks")}
    pods = stage.sunkctl("admin", "pods", "-A")
    as_json = stage.sunkctl("admin", "jobs", "-o", "json")

    assert {word: done.stderr for word, done in shown.items()} == dict.fromkeys(shown, "")
    assert "k8s: cordoned" in shown["status"].stdout
    assert "not ready" in shown["nodes"].stdout
    assert "\\x1b[31mred" in shown["jobs"].stdout
    assert "\x1b" not in "".join(done.stdout for done in shown.values())
    assert "team-b/web" in shown["locks"].stdout
    assert "train" in pods.stdout
    assert [job["job"] for job in json.loads(as_json.stdout)["items"]] == [11, 12]


def whats(answer: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(row["about"], row["name"], row["what"]) for row in answer["items"]]


def test_events_of_a_pod_are_for_those_who_may_get_it_and_hold_those_of_no_other(stage: Stage) -> None:
    own = stage.get("alice", "/namespaces/team-a/pods/train/events")
    others = stage.get("alice", "/namespaces/team-b/pods/web/events")
    forged = stage.get("alice", f"/namespaces/team-a/pods/train/events?key={UIDS['b']}")
    unknown = stage.get("alice", "/namespaces/team-a/pods/trian/events")

    assert (own[0], whats(own[1])) == (200, [("placement.pod", "train", "bound")])
    assert own[1]["items"][0]["details"] == ["job 11", "node d1", "kube node node1"]
    assert others[0] == 403
    assert whats(forged[1]) == [("placement.pod", "train", "bound")]
    assert (unknown[1]["items"], unknown[1]["near"]) == ([], ["train"])


def test_all_events_need_the_cluster_role_and_do_not_name_pods_that_may_not_be_read(stage: Stage) -> None:
    refused = [stage.get("dave", path)[0] for path in ("/events", "/jobs/11/events", "/nodes/d1/events")]
    _, hidden = stage.get("carol", "/events")
    _, shown = stage.get("admin", "/events")

    assert refused == [403, 403, 403]
    assert whats(hidden) == [
        ("slurm.node", "d1", "drained"),
        ("placement.pod", HIDDEN, "bound"),
        ("placement.pod", HIDDEN, "bound"),
        ("lock.node", "d1", "pending"),
        ("slurm.job", "11", "started"),
    ]
    assert "team-" not in json.dumps(hidden)
    assert hidden["items"][1]["details"] == []
    assert f"in the way {HIDDEN}" in hidden["items"][3]["details"]
    assert [row["name"] for row in shown["items"]][1:3] == ["train", "web"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("last=0", "last"),
        ("last=201", "last"),
        ("last=9999999999", "last"),
        ("since=-1", "since"),
        ("after=x", "after"),
        ("after=c1.1.1,c1", "after"),
        (f"after={'c1.1.1,' * 600}", "after"),
        ("key=a/b", "key"),
        (f"key={','.join(['a'] * 9)}", "key"),
    ],
)
def test_a_query_that_is_wrong_is_refused_by_the_name_of_its_parameter(
    stage: Stage, query: str, field: str
) -> None:
    status, answer = stage.get("carol", f"/events?{query}")

    assert (status, answer["message"].partition(":")[0]) == (400, field)


def test_sunkctl_shows_events_and_nothing_that_a_terminal_obeys(stage: Stage) -> None:
    shown = stage.run("admin", "events", "--last", "5")
    node = stage.run("admin", "events", "--node", "node1", "-o", "json")
    job = stage.run("admin", "events", "--job", "11")
    mistyped = stage.run("alice", "events", "--pod", "team-a/trian")
    both = stage.run("admin", "events", "--pod", "x", "--job", "1")

    assert [line.split()[3:6] for line in shown.stdout.splitlines()][1:3] == [
        ["placement.pod", "team-a/train", "bound"],
        ["placement.pod", "team-b/web", "bound"],
    ]
    assert "\\x1b[2Jred" in shown.stdout
    assert "\x1b" not in shown.stdout + node.stdout
    assert {json.loads(line)["about"] for line in node.stdout.splitlines()} == {"slurm.node", "lock.node"}
    assert len(job.stdout.splitlines()) == 1
    assert (mistyped.exit_code, "did you mean train?" in mistyped.stderr) == (4, True)
    assert (both.exit_code, "only one of them" in both.stderr) == (2, True)


def of_node(stage: Stage, name: str) -> dict[str, Any]:
    """Return how a Node is cordoned, and what asks for its reboot."""
    found = json.loads(stage.lab.kubectl("get", "node", name, "-o", "json"))
    conditions = found["status"].get("conditions", [])
    return {
        "cordoned": found["spec"].get("unschedulable", False),
        "reason": found["metadata"].get("annotations", {}).get(ANNOTATION_CORDON_REASON),
        "reboot": [one["reason"] for one in conditions if one["type"] == "PhaseState"],
    }


FREE: dict[str, Any] = {"cordoned": False, "reason": None, "reboot": []}


def test_a_drain_by_the_slurm_nodes_name_is_a_cordon_with_its_reason_and_an_undrain_ends_it(
    stage: Stage,
) -> None:
    tried = stage.run("erin", "drain", "d2", "--reason", "bad fan", "--dry-run")
    before = of_node(stage, "node2")
    done = stage.run("erin", "drain", "d2", "--reason", "bad fan")
    again = stage.run("erin", "drain", "node2", "--reason", "bad fan")
    other = stage.run("erin", "drain", "node2", "--reason", "xid 79")
    drained = of_node(stage, "node2")
    wrong = stage.run("erin", "undrain", "d2", "--reason", "xid 79")
    unasked = stage.run("erin", "undrain", "d2")
    back = stage.run("erin", "undrain", "d2", "--reason", "bad fan", "-o", "json")

    assert (tried.exit_code, before) == (0, FREE)
    assert tried.stdout == "c1 d2, Node node2: cordoned (bad fan), dry run: nothing was changed\n"
    assert (done.exit_code, done.stdout) == (0, "c1 d2, Node node2: cordoned (bad fan)\n")
    assert "it is not known now whether Slurm's administrators have drained d2" in done.stderr
    assert (again.exit_code, again.stdout) == (0, "c1 d2, Node node2: cordoned already (bad fan)\n")
    assert (other.exit_code, "cordoned already: bad fan" in other.stderr) == (1, True)
    assert drained == FREE | {"cordoned": True, "reason": "bad fan"}
    assert (wrong.exit_code, "the cordon has another reason: bad fan" in wrong.stderr) == (1, True)
    assert (unasked.exit_code, "the cordon has a reason: bad fan" in unasked.stderr) == (1, True)
    assert (back.exit_code, json.loads(back.stdout)["reason"]) == (0, "bad fan")
    assert of_node(stage, "node2") == FREE


def test_a_user_without_rights_learns_which_are_missing_and_what_would_do(stage: Stage) -> None:
    blind = stage.run("dave", "drain", "d2", "--reason", "x")
    reader = stage.run("carol", "drain", "d2", "--reason", "x", "--dry-run")

    assert (blind.exit_code, reader.exit_code) == (3, 3)
    assert 'User "dave" cannot get resource "nodes"' in blind.stderr
    assert 'User "carol" cannot patch resource "nodes"' in reader.stderr
    assert "create clusterrole NAME --verb=get,list,patch --resource=nodes" in reader.stderr
    assert of_node(stage, "node2") == FREE


def test_a_node_that_is_none_is_answered_with_near_names_and_changed_nothing(stage: Stage) -> None:
    mistyped = stage.run("erin", "drain", "nod2", "--reason", "x")
    not_ours = stage.run("erin", "drain", "node3", "--reason", "x")
    no_name = stage.run("erin", "drain", "../pods", "--reason", "x")
    long = stage.run("erin", "drain", "x" * 100_000, "--reason", "x")
    crafted = stage.run("erin", "drain", "d2", "--reason", "\x1b[2Jx")

    assert (mistyped.exit_code, "did you mean node2" in mistyped.stderr) == (4, True)
    assert (not_ours.exit_code, "the Node node3 has no Slurm node" in not_ours.stderr) == (4, True)
    assert (no_name.exit_code, long.exit_code, len(long.stderr) < 300) == (2, 2, True)
    assert (crafted.exit_code, "--reason: has the control character" in crafted.stderr) == (2, True)
    assert "\x1b" not in crafted.stderr
    assert of_node(stage, "node3") == FREE


def test_a_reboot_is_asked_for_of_a_node_that_is_drained_and_idle_only(stage: Stage) -> None:
    early = stage.run("erin", "reboot", "d1", "--reason", "firmware")
    stage.run("erin", "drain", "d1", "--reason", "firmware")
    stage.run("erin", "drain", "d2", "--reason", "firmware")
    busy = stage.run("erin", "reboot", "d2", "--reason", "firmware")
    locked = stage.run("erin", "reboot", "d1", "--reason", "firmware")
    before = of_node(stage, "node1")
    forced = stage.run("erin", "reboot", "d1", "--reason", "firmware", "--force")
    again = stage.run("erin", "reboot", "d1", "--reason", "firmware", "--force")
    stage.run("erin", "undrain", "d1", "--any")
    stage.run("erin", "undrain", "d2", "--any")

    assert (early.exit_code, "is not cordoned" in early.stderr) == (1, True)
    assert (busy.exit_code, "is not drained in Slurm yet" in busy.stderr) == (5, True)
    assert (locked.exit_code, "its lock is held" in locked.stderr) == (1, True)
    assert before["reboot"] == []
    assert forced.stdout == "c1 d1, Node node1: reboot requested (firmware)\n"
    assert again.stdout == "c1 d1, Node node1: reboot already requested (firmware)\n"
    assert of_node(stage, "node1")["reboot"] == ["production-powerreset"]


def test_doctor_looks_at_the_cluster_by_the_users_own_rights(stage: Stage, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    sets = "{cpu: {nodeSelector: {kind: cpu}, replicas: 2}}"
    values.write_text(f"clusterName: prod\nnats: {{existingSecret: x}}\ncompute: {{nodes: {sets}}}\n")
    found = stage.run("admin", "doctor", str(values), "-o", "json")
    blind = stage.run("dave", "doctor", str(values))
    refused = stage.run("admin", "doctor", str(stage.folder / "none.yaml"))

    assert found.exit_code == 1
    assert "compute.nodes.cpu: no Node matches" in json.dumps(json.loads(found.stdout)["findings"])
    assert (blind.exit_code, 'User "dave" cannot list' in blind.stderr) == (3, True)
    assert (refused.exit_code, "none.yaml" in refused.stderr) == (1, True)


def test_the_api_server_lists_the_openapi_document_and_passes_it_on(stage: Stage) -> None:
    def listed() -> str:
        found = json.loads(stage.lab.kubectl("get", "--raw", "/openapi/v3"))
        return str(found["paths"].get(ROOT[1:], {}).get("serverRelativeURL", ""))

    wait_for("the document", lambda: bool(listed()), 200)
    document = json.loads(stage.lab.kubectl("get", "--raw", listed()))

    assert document == json.loads(json.dumps(openapi.document()))
    assert f"{ROOT}/status" in document["paths"]


def test_the_page_comes_through_the_api_server_with_its_headers(stage: Stage) -> None:
    found = {name: stage.raw("dave", f"/page/{name}") for name in page_files.names()}

    assert {status for status, _, _ in found.values()} == {200}
    for _, headers, _ in found.values():
        assert headers.items() >= {key.lower(): value for key, value in HEADERS.items()}.items()
    assert found["main.js"][1]["content-type"] == "text/javascript; charset=utf-8"


def _revisions(text: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return which buckets `after` is of, and how far it read each of them."""
    return {cluster: (at.mark, at.revisions) for cluster, at in positions.read(text).items()}


def test_changes_are_of_what_each_may_see_and_name_no_pod_of_others(stage: Stage) -> None:
    tables = {name: stage.get("admin", f"/{name}")[1]["after"] for name in TABLES}
    heads = {name: after.rpartition(".") for name, after in tables.items()}
    query = urlencode(
        {name: f"{head}.{'-'.join('0' * (1 + last.count('-')))}" for name, (head, _, last) in heads.items()}
    )
    _, blind = stage.get("alice", f"/changes?{query}")
    _, hidden = stage.get("carol", f"/changes?{query}")
    _, shown = stage.get("admin", f"/changes?{query}")
    wrong, _ = stage.get("admin", "/changes?jobs=c1")

    assert (blind["refused"], blind["nodes"], blind["jobs"]) == (["nodes", "jobs", "placements"], [], [])
    assert [row["node"] for row in shown["nodes"]] == ["d1", "d2"]
    assert [row["job"] for row in hidden["jobs"]] == [11, 12]
    assert sorted(row["pod"] for row in shown["placements"]) == ["train", "web"]
    assert {row["pod"] for row in hidden["placements"]} == {HIDDEN}
    assert "team-" not in json.dumps(hidden)
    assert not any(uid in json.dumps(shown) for uid in UIDS.values())
    # The text also says when it was made: in another second than that of the whole table, perhaps.
    assert {name: _revisions(text) for name, text in shown["after"].items()} == {
        name: _revisions(text) for name, text in tables.items()
    }
    assert wrong == 400


def test_ui_hands_a_browser_the_users_own_answers_and_nobody_elses(stage: Stage) -> None:
    with stage.ui("erin") as printed, httpx.Client(trust_env=False, timeout=60) as browser:
        # A browser resolves names below localhost by itself.
        own = httpx.URL(printed)
        browser.headers["Host"] = own.netloc.decode()
        address = str(own.copy_with(host="127.0.0.1"))
        base = address.removesuffix("page/index.html")
        page, nodes, jobs = (browser.get(f"{base}{path}") for path in ("page/index.html", "nodes", "jobs"))
        secrets = browser.get(f"{base}../../api/v1/namespaces/sunk/secrets")
        unknown = browser.get(f"{address[: address.index('/', 8)]}/page/index.html")
        other_name = browser.get(f"{base}nodes", headers={"Host": "sunk.example"})

    assert (page.status_code, nodes.status_code, jobs.status_code) == (200, 200, 403)
    assert [row["node"] for row in nodes.json()["items"]] == ["d1", "d2"]
    assert "user erin may not" in jobs.json()["message"] or 'User "erin"' in jobs.json()["message"]
    assert page.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert (secrets.status_code, unknown.status_code, other_name.status_code) == (404, 404, 403)


def test_ui_asks_with_a_token_that_the_browser_never_gets_and_says_when_it_counts_no_more(
    stage: Stage, tmp_path: Path
) -> None:
    account = ("serviceaccount", "watcher", "--namespace", "team-a")
    bound = ("--clusterrole=sunk-view", "--serviceaccount=team-a:watcher")
    stage.lab.kubectl("create", *account)
    stage.lab.kubectl("create", "clusterrolebinding", "watcher", *bound)
    config = kubeconfig_of_account(stage.lab, tmp_path / "kubeconfig", "watcher", "team-a")
    token = json.loads(config.read_text())["users"][0]["user"]["token"]
    environment = {**stage.environment("admin"), "KUBECONFIG": str(config)}

    with ui(environment) as printed, httpx.Client(trust_env=False, timeout=60) as browser:
        own = httpx.URL(printed)
        browser.headers["Host"] = own.netloc.decode()
        base = str(own.copy_with(host="127.0.0.1")).removesuffix("page/index.html")
        shown = {path: browser.get(f"{base}{path}") for path in ("page/index.html", "nodes", "jobs", "locks")}
        stage.lab.kubectl("delete", *account)
        # The API server remembers a token for some seconds.
        wait_for("the end of the token", lambda: browser.get(f"{base}nodes").status_code == 401, 60)
        ended = browser.get(f"{base}nodes").json()
    again = sunkctl(environment, "status")

    assert {path: answer.status_code for path, answer in shown.items()} == dict.fromkeys(shown, 200)
    assert [row["job"] for row in shown["jobs"].json()["items"]] == [11, 12]
    assert not any(token in f"{answer.headers}{answer.text}" for answer in shown.values())
    assert "log in again" in ended["message"]
    assert (again.returncode, "the API server does not know you: log in again" in again.stderr) == (3, True)


def test_top_without_a_terminal_prints_one_status_after_the_other(stage: Stage) -> None:
    shown = stage.run("admin", "top", "--count", "2", "--interval", "1")

    assert (shown.exit_code, shown.stdout.count("Slurm cluster c1")) == (0, 2)
    assert "\x1b" not in shown.stdout


def test_kubectl_discovers_the_group_and_warns_of_nothing(stage: Stage) -> None:
    with httpx.Client(verify=stage.context("admin"), trust_env=False, timeout=30) as client:
        answers = [
            client.get(f"{stage.lab.network.api}{path}")
            for path in ("/apis/view.sunk.coreweave.com", ROOT, "/apis", f"{ROOT}/status")
        ]
    groups = [group["name"] for group in answers[2].json()["groups"]]

    assert [(answer.status_code, answer.headers.get("warning")) for answer in answers] == [(200, None)] * 4
    assert "view.sunk.coreweave.com" in groups
    assert "view.sunk.coreweave.com" not in stage.lab.kubectl("api-resources", "--output=name")
    assert "view.sunk.coreweave.com/v1alpha1" in stage.lab.kubectl("api-versions").split()
    assert "clusters" in json.loads(stage.lab.kubectl("get", "--raw", f"{ROOT}/status"))


def test_following_goes_on_where_it_was_after_nats_was_away_without_loss_or_double(stage: Stage) -> None:
    env = stage.environment("erin")
    program = Path(sys.executable).with_name("sunkctl")
    command = [program, "events", "--follow", "--node", "d1", "--last", "1", "-o", "json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = process.stdout
        first = json.loads(lines.readline())
        for number in range(1, 4):
            stage.publish(drained(number))
        seen = [json.loads(lines.readline())["sequence"] for _ in range(3)]
        stage.server.restart()
        for number in range(4, 304):  # More than one answer holds.
            stage.publish(drained(number))
        seen += [json.loads(lines.readline())["sequence"] for _ in range(300)]
        process.terminate()

    assert first["sequence"] < seen[0]
    assert seen == sorted(set(seen))
    assert len(seen) == 303
