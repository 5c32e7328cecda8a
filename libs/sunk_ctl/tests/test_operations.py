"""What is changed of a Node, and why not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_ctl import operations
from sunk_ctl.node_commands import sentence
from sunk_ctl.operations import Acted, Change, reason_of
from sunk_ctl.refusals import NOT_FOUND, NOT_NOW, REFUSED, NoAnswerError, of_kubernetes
from sunk_events.view import NodeRow, Nodes
from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_CORDON_REASON, LABEL_CLUSTER, LABEL_POD

T0 = datetime(2026, 1, 1, tzinfo=UTC)
VERSION: dict[str, Any] = {"uid": "u1", "resourceVersion": "7"}
SILENT = "c1: syncer has not seen Slurm for 600 s: its data may be old"


def node(
    name: str = "node1",
    *,
    slurm: str = "gpu-1",
    reason: str | None = None,
    is_cordoned: bool | None = None,
    looked: datetime | None = T0,
    **status: str,
) -> Node:
    labels = {LABEL_POD: slurm, LABEL_CLUSTER: "c1"} if slurm else {}
    annotations = {ANNOTATION_CORDON_REASON: reason} if reason else {}
    conditions = [
        {"type": kind, "status": value, "message": "bad fan", "reason": "r", "lastHeartbeatTime": looked}
        for kind, value in status.items()
    ]
    raw = {
        "metadata": {
            "name": name,
            "uid": "u1",
            "resourceVersion": "7",
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"unschedulable": (reason is not None) if is_cordoned is None else is_cordoned},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(raw, Node)


def row(**fields: Any) -> NodeRow:  # noqa: ANN401 - of every type
    known: dict[str, Any] = {
        "cluster": "c1",
        "node": "gpu-1",
        "kube_node": "node1",
        "state": "IDLE",
        "is_cordoned": True,
    }
    known["kube_since"] = T0 - timedelta(seconds=600)
    wanted: dict[str, Any] = {"is_drain": True, **known, **fields}
    return NodeRow(**wanted)


def answer(*rows: NodeRow, problems: tuple[str, ...] = (), age_s: float | None = 10) -> Nodes:
    """Return what sunk-view says, of Slurm's answer of *age_s* ago."""
    seen = {} if age_s is None else {"c1": T0 - timedelta(seconds=age_s), "c2": T0}
    return Nodes(items=rows, problems=problems, time=T0, slurm_seen=seen)


def pod(name: str, owner: str = "", phase: str = "Running") -> Pod:
    owners = [{"kind": owner, "name": "x", "controller": True}] if owner else []
    meta = {"namespace": "team-a", "name": name, "ownerReferences": owners}
    return msgspec.convert({"metadata": meta, "status": {"phase": phase}}, Pod)


def test_a_drain_is_a_cordon_with_its_reason_of_the_version_that_was_read() -> None:
    wanted = Change(
        body={
            "metadata": VERSION | {"annotations": {ANNOTATION_CORDON_REASON: "bad fan"}},
            "spec": {"unschedulable": True},
        }
    )

    assert operations.drain(node(), "bad fan", is_overwrite=False) == wanted
    assert operations.drain(node(reason="bad fan"), "bad fan", is_overwrite=False) is None


def test_the_reason_of_a_cordon_that_is_there_stays_unless_the_user_says_otherwise() -> None:
    with pytest.raises(NoAnswerError, match="cordoned already: platform: xid 79"):
        operations.drain(node(reason="platform: xid 79"), "bad fan", is_overwrite=False)

    assert operations.drain(node(reason="platform: xid 79"), "bad fan", is_overwrite=True) is not None


def test_an_undrain_takes_cordon_and_reason_away_and_only_those_that_are_meant() -> None:
    body = {
        "metadata": VERSION | {"annotations": {ANNOTATION_CORDON_REASON: None}},
        "spec": {"unschedulable": None},
    }

    def undrain(found: Node, reason: str = "", *, is_any: bool = False) -> Change | None:
        return operations.undrain(found, reason, is_any=is_any)

    assert undrain(node(reason="bad fan"), "bad fan") == Change(body=body)
    assert undrain(node(is_cordoned=True)) == Change(body=body)
    assert undrain(node(reason="xid 79"), is_any=True) == Change(body=body)
    assert undrain(node(reason="xid 79"), "bad fan", is_any=True) == Change(body=body)
    assert undrain(node()) is None
    with pytest.raises(NoAnswerError, match="stays cordoned, because the cordon has another reason: xid 79"):
        undrain(node(reason="xid 79"), "bad fan")
    with pytest.raises(
        NoAnswerError, match="stays cordoned, because the cordon has another reason: none given"
    ):
        undrain(node(is_cordoned=True), "bad fan")
    with pytest.raises(NoAnswerError, match=r"has a reason: xid 79\. --reason with this text ends it, --any"):
        undrain(node(reason="xid 79"))


@pytest.mark.parametrize("is_any", [False, True])
@pytest.mark.parametrize("reason", ["", "mine"])
def test_a_reason_without_a_cordon_stays_if_it_is_not_the_users_own(reason: str, *, is_any: bool) -> None:
    theirs, own = node(reason="platform", is_cordoned=False), node(reason="mine", is_cordoned=False)

    assert operations.undrain(theirs, reason, is_any=is_any) is None
    assert (operations.undrain(own, reason, is_any=is_any) is None) == (not reason)


def test_a_drain_says_which_reason_without_a_cordon_it_replaces() -> None:
    theirs = node(reason="platform", is_cordoned=False)

    assert operations.drain(theirs, "mine", is_overwrite=False) is not None
    assert operations.replaced(theirs, "mine") == (
        "node1 had a reason without a cordon, which this one replaces: platform",
    )
    for found in (node(), node(reason="mine", is_cordoned=False), node(reason="platform")):
        assert operations.replaced(found, "mine") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "--reason: give a reason"),
        ("   ", "--reason: give a reason"),
        ("x" * 201, "--reason: has 201 characters; at most 200"),
        ("x" * 10_000_000, "--reason: has 10000000 characters"),
        ("a\nb", "--reason: has the control character '\\\\n'"),
        ("\x1b[2J", "--reason: has the control character '\\\\x1b'"),
        ("\udcff", "--reason: has the control character"),
        ("please verify-undrain", "--reason: verify-undrain would make"),
    ],
)
def test_a_reason_that_can_be_none_is_refused_by_the_name_of_its_option(text: str, why: str) -> None:
    with pytest.raises(NoAnswerError, match=why) as refused:
        reason_of(text)

    assert refused.value.status == 2
    assert len(str(refused.value)) < 200


@given(st.text(max_size=300))
def test_no_reason_that_passes_has_a_control_character_or_is_long(text: str) -> None:
    try:
        reason = reason_of(text)
    except NoAnswerError:
        return
    assert reason.isprintable()
    assert 0 < len(reason) <= 200


def test_a_node_is_found_by_either_name_and_never_guessed_where_two_have_it() -> None:
    assert operations.chosen("node1", node(), []) == node()
    assert operations.chosen("gpu-1", None, [node()]) == node()
    assert operations.chosen("node1", node(), [node()]) == node()
    assert operations.chosen("x", None, []) is None
    with pytest.raises(NoAnswerError, match="gpu-1 matches several Nodes: node1, node2"):
        operations.chosen("gpu-1", None, [node(), node("node2")])
    with pytest.raises(NoAnswerError, match="node2 matches several Nodes: node1, node2"):
        operations.chosen("node2", node("node2"), [node(slurm="node2")])
    with pytest.raises(NoAnswerError, match="the Node node1 has no Slurm node"):
        operations.chosen("node1", node(slurm=""), [])


def test_a_node_that_is_not_known_is_answered_with_the_names_that_are_near() -> None:
    found = operations.unknown("gpu-11", [node(), node("node2", slurm="gpu-2"), node("db1", slurm="")])

    assert found.status == NOT_FOUND
    assert "no node gpu-11 is known: did you mean gpu-1" in str(found)


def test_a_drain_of_slurms_administrators_is_said_with_what_lifts_it() -> None:
    assert operations.slurms_own(node(SlurmCordon="False"), T0) == ()
    assert operations.slurms_own(node(SlurmCordon="False", looked=None), T0) == ()
    (stays,) = operations.slurms_own(node(SlurmCordon="True"), T0)
    assert stays == (
        "a drain of Slurm's administrators stays: bad fan. To end it in Slurm: scontrol update "
        "nodename=gpu-1 state=undrain"
    )
    old = T0 - operations.OLD - timedelta(seconds=1)
    for unknown in (
        node(),
        node(SlurmCordon="Unknown"),
        node(SlurmCordon="False", looked=old),
        node(SlurmCordon="True", looked=old),
    ):
        assert operations.slurms_own(unknown, T0) == (
            "it is not known now whether Slurm's administrators have drained gpu-1",
        )


def test_a_reboot_is_the_condition_that_the_platform_waits_for() -> None:
    change = operations.reboot(node(), "firmware", "PhaseState", "production-powerreset", T0)
    condition = {
        "type": "PhaseState",
        "status": "True",
        "reason": "production-powerreset",
        "message": "sunkctl requested a reboot of gpu-1: firmware",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    }
    wanted = Change(body={"metadata": VERSION, "status": {"conditions": [condition]}}, subresource="status")

    assert change == wanted
    assert operations.reboot(node(PhaseState="True"), "firmware", "PhaseState", "r", T0) is None


@pytest.mark.parametrize(
    ("found", "rows", "problems", "status", "why"),
    [
        pytest.param(node(), [row()], (), 1, "is not cordoned", id="not cordoned"),
        pytest.param(node(reason="r"), [row()], (SILENT,), NOT_NOW, "runs a job: c1: syncer", id="old"),
        pytest.param(node(reason="r"), [], (), NOT_NOW, "Slurm does not report", id="not in Slurm"),
        pytest.param(
            node(reason="r"), [row(kube_node="node2")], (), NOT_NOW, "Slurm does not report", id="moved"
        ),
        pytest.param(
            node(reason="r"), [row(cluster="c2")], (), NOT_NOW, "Slurm does not report", id="another's"
        ),
        pytest.param(node(reason="r"), [row(state="")], (), NOT_NOW, "Slurm does not report", id="no state"),
        pytest.param(node(reason="r"), [row(is_drain=False)], (), NOT_NOW, "not drained in Slurm", id="new"),
        pytest.param(node(reason="r"), [row(is_busy=True)], (), 1, "jobs still run on gpu-1", id="busy"),
        pytest.param(node(reason="r"), [row(lock="locked")], (), 1, "its lock is held", id="locked"),
    ],
)
def test_no_reboot_is_asked_for_where_a_job_may_run(
    found: Node, rows: list[NodeRow], problems: tuple[str, ...], status: int, why: str
) -> None:
    with pytest.raises(NoAnswerError, match=why) as refused:
        operations.require_idle(found, answer(*rows, problems=problems))

    assert refused.value.status == status


def test_an_idle_node_may_be_rebooted_whatever_ails_another_cluster() -> None:
    operations.require_idle(node(reason="r"), answer(row(), problems=(SILENT.replace("c1", "c2"),)))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (answer(row(), age_s=149), "Slurm answered 149 s ago"),
        (answer(row(), age_s=76), "Slurm answered 76 s ago"),
        (answer(row(), age_s=None), "sunk-view does not know when"),
        (msgspec.structs.replace(answer(row()), time=None), "sunk-view does not know when"),
        (answer(row(is_cordoned=False)), "the services have not seen the cordon"),
        (answer(row(kube_since=T0 - timedelta(seconds=5))), "Slurm has not answered since the cordon"),
        (answer(row(is_busy=True), age_s=149), "Slurm answered 149 s ago"),
    ],
)
def test_an_answer_of_slurm_that_is_old_or_older_than_the_cordon_is_none(found: Nodes, why: str) -> None:
    with pytest.raises(NoAnswerError, match=f"it is not known yet whether .*: {why}") as refused:
        operations.require_idle(node(reason="r"), found)

    assert refused.value.status == NOT_NOW


def test_no_reboot_takes_pods_away_that_nobody_named() -> None:
    stay = [pod("a", "DaemonSet"), pod("b", "NodeSet"), pod("c", "Node"), pod("d", "Job", "Succeeded")]
    lost = [pod(f"p{number}", "ReplicaSet") for number in range(6)]

    operations.require_no_pods(node(), stay)
    with pytest.raises(NoAnswerError, match=r"Pods run on node1: team-a/x\. kubectl drain"):
        operations.require_no_pods(node(), [*stay, pod("x")])
    with pytest.raises(NoAnswerError, match=r"team-a/p0, .*, team-a/p4 and 1 more\. kubectl drain"):
        operations.require_no_pods(node(), [*stay, *lost])


def test_a_refusal_names_a_cluster_role_that_would_do() -> None:
    said = 'nodes "node1" is forbidden: User "dave" cannot patch resource'
    text = f"patch /api/v1/nodes/node1: HTTP 403: {said}"
    error = of_kubernetes(KubeRejectedError(text, status=403), "nodes,nodes/status")
    away = of_kubernetes(KubeUnavailableError("get /api/v1/nodes/x: HTTP 503"))

    assert error.status == REFUSED
    assert str(error) == (
        f"{said}. A ClusterRole that has it: "
        "kubectl create clusterrole NAME --verb=get,list,patch --resource=nodes,nodes/status"
    )
    assert away.status == NOT_NOW


def test_what_was_done_is_a_line() -> None:
    done = Acted(action="drain", cluster="c1", node="gpu-1", kube_node="node1", is_changed=True, reason="fan")
    tried = msgspec.structs.replace(done, is_dry_run=True)
    before = msgspec.structs.replace(done, action="undrain", is_changed=False, reason="")

    assert sentence(done) == "c1 gpu-1, Node node1: cordoned (fan)"
    assert sentence(tried) == "c1 gpu-1, Node node1: cordoned (fan), dry run: nothing was changed"
    assert sentence(before) == "c1 gpu-1, Node node1: not cordoned"
