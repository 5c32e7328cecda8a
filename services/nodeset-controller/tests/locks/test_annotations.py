"""A lock as it stands on the Node and as the bus has it."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events.locks import LockState
from sunk_kube.objects import Node, Taint
from sunk_kube.testing import node
from sunk_kube.wellknown import ANNOTATION_LOCK, ANNOTATION_LOCK_HOLDERS, LABEL_CLUSTER
from sunk_nodeset_controller.locks.annotations import left_over, patch, read
from sunk_nodeset_controller.locks.events import facts, state
from sunk_nodeset_controller.locks.model import OPEN, Holder, LockTaint, NodeLock

T0 = datetime(2026, 1, 1, 12, 0, 0, 250000, tzinfo=UTC)
TAINT = LockTaint()
OURS = Taint(key=TAINT.key, value=TAINT.value, effect=TAINT.effect)
OTHER = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule", time_added=T0)
HELD = NodeLock(
    value="locked",
    holders=(
        Holder(job=1, level="normal", requested_at=T0, granted=T0),
        Holder(job=2, level="strict", requested_at=T0),
    ),
    is_tainted=True,
)


def patched(before: Node, lock: NodeLock) -> Node:
    """Return *before* as the API server would have it after the patch: a merge, taints as one list."""
    body = patch(before, lock, TAINT)
    annotations = {**before.metadata.annotations, **body["metadata"]["annotations"]}
    raw: dict[str, Any] = msgspec.to_builtins(before)
    raw["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    raw.setdefault("spec", {}).update(body.get("spec", {}))
    return msgspec.convert(raw, Node)


def test_what_is_written_on_a_node_is_read_from_it() -> None:
    after = patched(node(taints=(OTHER,)), HELD)

    assert read(after, TAINT) == HELD
    assert after.spec.taints == (OTHER, OURS)


def test_an_unlocked_node_keeps_every_taint_but_ours_and_no_holders() -> None:
    after = patched(patched(node(taints=(OTHER,)), HELD), OPEN)

    assert read(after, TAINT) == OPEN
    assert after.spec.taints == (OTHER,)
    assert after.metadata.annotations == {ANNOTATION_LOCK: "false"}


def test_a_patch_holds_for_the_version_it_was_decided_on_and_leaves_right_taints_alone() -> None:
    body = patch(node(taints=(OURS,)), HELD, TAINT)

    assert body["metadata"]["resourceVersion"] == "1"
    assert "spec" not in body


def test_a_taint_of_our_key_with_another_effect_is_replaced() -> None:
    wrong = Taint(key=TAINT.key, value="true", effect="NoSchedule")

    assert not read(node(taints=(wrong,)), TAINT).is_tainted
    assert patched(node(taints=(wrong,)), HELD).spec.taints == (OURS,)


def test_a_taint_of_other_settings_goes_with_the_lock_or_by_itself() -> None:
    old = Taint(key=TAINT.key, value="true", effect="NoSchedule")

    for taints in ((OTHER, old), (OTHER, old, OURS)):
        before = read(node(taints=taints), TAINT)
        assert before != OPEN
        assert patched(node(taints=taints), OPEN).spec.taints == (OTHER,)
        assert patched(node(taints=taints), HELD).spec.taints == (OTHER, OURS)


def test_a_lock_that_nobody_looks_after_is_found_but_not_another_clusters() -> None:
    def locked(name: str, **labels: str) -> Node:
        return patched(node(name, labels={LABEL_CLUSTER: labels["of"]} if labels else {}), HELD)

    nodes = (locked("known"), locked("given-up"), locked("ours", of="lab"), locked("theirs", of="other"))

    found = left_over((*nodes, node("free")), {"known"}, "lab", TAINT)

    assert [one.metadata.name for one in found] == ["given-up", "ours"]


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="never locked"),
        pytest.param({ANNOTATION_LOCK: "false"}, id="unlocked"),
        pytest.param({ANNOTATION_LOCK: "banana", ANNOTATION_LOCK_HOLDERS: "not JSON"}, id="nonsense"),
        pytest.param({ANNOTATION_LOCK_HOLDERS: '[{"job": -1}]'}, id="no holder of ours"),
        pytest.param({ANNOTATION_LOCK_HOLDERS: '[{"job": 1, "x": ' + "[" * 9000}, id="nested without end"),
    ],
)
def test_nonsense_on_a_node_is_no_lock(annotations: dict[str, str]) -> None:
    assert read(node(annotations=annotations), TAINT) == OPEN


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(T0.isoformat()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["job", "level", "asked", "granted", "x"]), inner, max_size=5)
    ),
    max_leaves=30,
).map(json.dumps)
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "job": st.integers(-1, 1 << 40),
    "level": st.sampled_from(["normal", "strict", "odd"]),
    "asked": st.sampled_from([T0.isoformat(), "yesterday", None]),
    "granted": st.sampled_from([T0.isoformat(), "", 1]),
}
HOLDERS = st.lists(st.fixed_dictionaries({}, optional=FIELDS), max_size=4).map(json.dumps)


@given(
    st.sampled_from(["false", "pending", "locked", "locked_strict", "", "Locked"]) | st.text(max_size=20),
    st.text(max_size=50) | JSON | HOLDERS,
)
def test_whatever_is_written_on_a_node_is_read_as_a_lock_and_written_back_as_the_same(
    value: str, holders: str
) -> None:
    before = node(annotations={ANNOTATION_LOCK: value, ANNOTATION_LOCK_HOLDERS: holders})

    found = read(before, TAINT)

    assert read(patched(before, found), TAINT) == found
    assert found.value == (value if value in {"pending", "locked", "locked_strict"} else "false")
    assert all(holder.job > 0 for holder in found.holders)


def known(lock: NodeLock) -> LockState:
    return state("gpu-000-011", "node1", lock, (), T0)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(None, "false", None, id="never locked, no news"),
        pytest.param(None, "pending", "lock_pending", id="locking"),
        pytest.param("false", "pending", "lock_pending", id="locking again"),
        pytest.param("pending", "locked", "lock_locked", id="locked"),
        pytest.param("pending", "locked_strict", "lock_locked", id="locked strictly"),
        pytest.param("false", "locked", "lock_locked", id="locked while we were away"),
        pytest.param("locked", "locked", None, id="no news"),
        pytest.param("locked_strict", "locked", None, id="the strict one left: no news"),
        pytest.param("locked", "pending", "lock_pending", id="another job waits"),
        pytest.param("locked", "false", "lock_unlocked", id="unlocked"),
        pytest.param("pending", "false", "lock_unlocked", id="given up"),
    ],
)
def test_each_change_of_a_lock_is_told_once(before: str | None, after: str, told: str | None) -> None:
    was = known(msgspec.convert({"value": before}, NodeLock)) if before else None
    now = known(msgspec.convert({"value": after}, NodeLock))

    found = facts(was, now, revision=7, waited_s=None, cluster="lab")

    assert [event.id for event in found] == ([f"{told}:gpu-000-011:7"] if told else [])


def test_the_state_says_since_when_each_job_waits() -> None:
    assert [one.asked for one in known(HELD).holders] == [T0, T0]


def test_the_state_names_the_first_pods_in_the_way() -> None:
    pods = tuple(f"default/web-{number}" for number in range(20))

    assert state("gpu-000-011", "node1", HELD, pods, T0).in_the_way == pods[:10]
