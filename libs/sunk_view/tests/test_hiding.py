"""Names of other teams' Pods in texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events.requests import Finding
from sunk_events.view import HIDDEN, DrainCause, Explained, JobRow, Jobs, Part, PodRow, Pods
from sunk_view.hiding import hidden, namespaces_in, without

label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)


def of_team_a(namespace: str) -> bool:
    return namespace == "team-a"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("team-a/web: in the way", "team-a/web: in the way"),
        ("team-b/web: in the way", HIDDEN),
        ("d1: team-b/web, team-a/x.y; team-c/z", f"d1: {HIDDEN}, team-a/x.y; {HIDDEN}"),
        ("(team-b/web)", f"({HIDDEN})"),
        ("in the way: 123/456", f"in the way: {HIDDEN}"),
        ("2/web", HIDDEN),
        ("no volume x:/team-b/secret", f"no volume x:{HIDDEN}"),
        ("..team-b/secret", HIDDEN),
        ("/var/log/pods/team-b_secret-0", HIDDEN),
        ("waits: post /api/v1/namespaces/team-b/pods/x/eviction: HTTP 429: x-pdb", f"waits: {HIDDEN}"),
        ("get /api/v1/namespaces/team-a/pods/x: HTTP 500", "get /api/v1/namespaces/team-a/pods/x: HTTP 500"),
        ("I/O error, gres/gpu count of /dev/nvidia0", "I/O error, gres/gpu count of /dev/nvidia0"),
        ("a toleration of sunk.coreweave.com/lock", "a toleration of sunk.coreweave.com/lock"),
        ("read /var/run/x", "read /var/run/x"),
        ("job 4711 on gpu-[01-04]", "job 4711 on gpu-[01-04]"),
        ("no Pod team-b/web exists", "no such Pod exists"),
        ("no NodeSet team-b/rack", "no such NodeSet exists"),
        ("no Pod team-a/web exists", "no Pod team-a/web exists"),
        ("in the way: Pod team-b/web", f"in the way: {HIDDEN}"),
        ("ready: kubectl describe pod -n team-b web", f"ready: kubectl describe {HIDDEN}"),
        ("ready: kubectl describe pod -n team-a web", "ready: kubectl describe pod -n team-a web"),
        ("kubectl annotate pod -n team-b web acme.com/x-", f"kubectl annotate {HIDDEN}"),
        ("kubectl annotate pod -n team-a web acme.com/x-", "kubectl annotate pod -n team-a web acme.com/x-"),
        ("kubectl delete pod web --namespace=team-b; team-a/x", f"kubectl delete {HIDDEN}; team-a/x"),
        ("kubectl get pod web -n TEAM", f"kubectl get {HIDDEN}"),
        ("kubectl uncordon node1", "kubectl uncordon node1"),
        ("fails since srun -n 4 a.out", "fails since srun -n 4 a.out"),
        ("", ""),
    ],
)
def test_a_pod_of_a_namespace_that_may_not_be_read_is_hidden(text: str, shown: str) -> None:
    assert hidden(text, of_team_a) == shown


def test_nothing_is_left_of_what_the_api_server_says_of_another_teams_pod() -> None:
    said = (
        "post /api/v1/namespaces/team-b/pods/secret-0/eviction: HTTP 429: Cannot evict pod as it would "
        "violate the pod's disruption budget. The disruption budget secret-pdb needs 1; secret, too"
    )
    text = f"team-b/secret-0: {said}; team-a/x: its grace period; d2: team-c/secret: {said}"

    assert hidden(text, of_team_a) == f"{HIDDEN}; team-a/x: its grace period; d2: {HIDDEN}"


@pytest.mark.parametrize("tag", ["", " (sunk:verify-undrain)"])
def test_a_text_that_was_cut_within_a_namespace_does_not_show_what_is_left_of_it(tag: str) -> None:
    chars = 1024 if not tag else 512
    said = ("team-a/x, " * 200)[: chars - len(tag) - 10]
    text = f"{said} secret-te{tag}"

    assert len(text) == chars
    assert namespaces_in(Part(cluster="c1", service="s", problem=text)) == {"team-a", ""}
    assert "secret" not in hidden(text, of_team_a)
    assert hidden(text, lambda _: True) == text


@given(
    label, label, st.sampled_from(["", "in the way: ", "(", "a, "]), st.sampled_from(["", ": evicted", ")"])
)
def test_no_name_of_another_team_passes(namespace: str, name: str, before: str, after: str) -> None:
    if namespace == "gres" or (namespace, name) == ("n", "a"):
        return
    shown = hidden(f"{before}{namespace}/{name}{after}", lambda _: False)
    assert shown == f"{before}{HIDDEN}{'' if 'evicted' in after else after}"


def test_a_command_that_names_a_pod_without_a_slash_is_looked_up_and_hidden_in_an_answer() -> None:
    finding = Finding(what="its Pod is not ready", would_change="kubectl describe pod -n team-b web")
    part = Part(cluster="c1", service="nodeset-controller", findings=(finding,))

    assert namespaces_in(part) == {"team-b"}
    assert without(part, of_team_a).findings[0].would_change == f"kubectl describe {HIDDEN}"


def test_names_that_users_give_their_jobs_cost_nobody_a_question_and_little_time() -> None:
    names = ("exp1/run3", "0aa/x", "kubectl get pods -n 0ab x")
    jobs = Jobs(items=tuple(JobRow(cluster="c1", job=7, name=name) for name in names))

    assert namespaces_in(jobs) == {""}  # Only a caller who may read every namespace is shown them.
    assert [job.name for job in without(jobs, of_team_a).items] == [HIDDEN, HIDDEN, names[2]]


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        pytest.param("kubectl drain n1 for team-b/t since -n team-a pdb", {"team-a", "team-b"}, id="both"),
        pytest.param("kubectl get pods --namespace=team-b -n team-a", {"team-a", "team-b"}, id="two"),
        pytest.param("kubectl get pods -nteam-b web", {"team-b"}, id="without a blank"),
        pytest.param("kubectl get pods -n $HOME", {""}, id="no namespace"),
        pytest.param("kubectl -n team-b describe pod web", {"team-b"}, id="the option first"),
        pytest.param("kubectl uncordon node1", set[str](), id="of a Node"),
    ],
)
def test_of_a_command_every_namespace_counts_that_it_may_name(text: str, namespaces: set[str]) -> None:
    assert namespaces_in(Part(cluster="c1", service="s", problem=text)) == namespaces
    assert ("team-b" in hidden(text, of_team_a)) == ("team-b" in text and not namespaces - {"team-a"})


@pytest.mark.parametrize("text", ["kubectl a " * 100_000 + "-n x y", "kubectl a " + "a" * 1_000_000 + ";/"])
def test_a_long_text_is_read_once(text: str) -> None:
    """Read again from each command or each letter, it would take longer than a test may."""
    assert len(hidden(text, lambda _: True)) == len(text)
    assert namespaces_in(Part(cluster="c1", service="s", problem=text))


def test_what_follows_a_command_that_is_hidden_may_be_more_of_it() -> None:
    text = "kubectl describe pod -n team-b web; 0 of 3 nodes fit Pod secret"

    assert hidden(text, of_team_a) == f"kubectl describe {HIDDEN}"


def test_a_row_of_another_teams_pod_says_that_it_is_there_and_no_more() -> None:
    row = PodRow(
        cluster="c1",
        namespace="team-b",
        pod="secret-project",
        phase="bound",
        since="2026-01-01T00:00:00Z",  # type: ignore[arg-type]
        job=7,
        reason="for secret-project",
        gang="secret",
        node="d1",
    )

    (found,) = without(Pods(items=(row,)), of_team_a).items

    assert "secret" not in repr(found)
    assert (found.pod, found.namespace, found.job, found.node) == (HIDDEN, "", None, "d1")


def test_what_is_asked_about_and_names_of_slurm_are_left_alone() -> None:
    part = Part(cluster="c1", service="syncer", findings=(Finding(what="w", because="team-b/web"),))
    found = without(Explained(what="pod", name="team-a/web", parts=(part,)), of_team_a)
    jobs = Jobs(items=(JobRow(cluster="c1", job=1, name="train", user="team/b"),))
    drain = without(DrainCause(reason="k8s: team-b/web", nodes=1), of_team_a)

    assert found.name == "team-a/web"
    assert found.parts[0].findings[0].because == HIDDEN
    assert without(jobs, of_team_a) == jobs
    assert drain.reason == f"k8s: {HIDDEN}"
    assert namespaces_in(jobs) == set()
    assert namespaces_in(found) == set()
    assert namespaces_in(part) == {"team-b"}


def test_a_placeholder_job_has_the_name_of_its_pod_and_does_not_show_it() -> None:
    named = [f"team-{team}/web" for team in "ab"]
    jobs = Jobs(items=tuple(JobRow(cluster="c1", job=7, name=name, is_placeholder=True) for name in named))

    assert namespaces_in(jobs) == {"team-a", "team-b"}
    assert [job.name for job in without(jobs, of_team_a).items] == ["team-a/web", HIDDEN]
