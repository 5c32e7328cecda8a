"""Taints of the lock that no lock put on a Node: who did, and when that is to be looked at."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from sunk_events.locks import LockState, LockValue
from sunk_kube.testing import T0
from sunk_nodeset_controller.lock_controller.stray_taints import (
    ManagedNode,
    is_as_published,
    is_stray_taint,
    taken_off,
    who_tainted,
)
from sunk_nodeset_controller.locks.model import OPEN, LockTaint, NodeLock


def written(manager: str, minute: int, spec: dict[str, Any] | None, operation: str = "Update") -> object:
    fields: dict[str, object] = {"f:metadata": {}} if spec is None else {"f:spec": spec}
    time = (T0 + timedelta(minutes=minute)).isoformat()
    return {"manager": manager, "operation": operation, "time": time, "fieldsV1": fields}


def managed(*entries: object) -> ManagedNode:
    return msgspec.convert({"metadata": {"name": "n1", "managedFields": entries}}, ManagedNode)


def test_who_wrote_the_taints_last_is_read_from_the_managed_fields() -> None:
    node = managed(
        written("kube-controller-manager", 1, {"f:taints": {}}),
        written("kubectl-taint", 2, {"f:taints": {}, "f:unschedulable": {}}),
        written("kubectl-label", 3, None),
        written("kubectl-cordon", 4, {"f:unschedulable": {}}),
    )

    assert who_tainted(node) == "'kubectl-taint' (Update at 2026-01-01T12:02:00Z)"
    assert "'kubectl-taint'" in taken_off(LockTaint(), who_tainted(node)).note


@pytest.mark.parametrize(
    "entries",
    [(), (written("kubectl-label", 3, None),), ({"manager": "x", "fieldsV1": {"f:spec": None}},)],
    ids=["none", "nobody", "odd"],
)
def test_where_the_api_server_does_not_know_it_was_an_unknown_client(entries: tuple[object, ...]) -> None:
    assert who_tainted(managed(*entries)) == "an unknown client"


def test_a_managers_name_is_quoted_and_cut() -> None:
    assert who_tainted(managed(written("\n" + "x" * 999, 1, {"f:taints": {}}))).startswith("'\\nxxx")
    assert len(who_tainted(managed(written("x" * 999, 1, {"f:taints": {}})))) < 300


@pytest.mark.parametrize(
    ("lock", "is_stray"),
    [
        (OPEN, False),
        (NodeLock(is_tainted=True), True),
        (NodeLock(has_old_taint=True), True),
        (NodeLock(value="locked", is_tainted=True), False),
        (NodeLock(value="locked"), False),
    ],
)
def test_a_taint_without_our_annotation_is_a_strangers(lock: NodeLock, *, is_stray: bool) -> None:
    assert is_stray_taint(lock) is is_stray


@pytest.mark.parametrize(
    ("lock", "told", "expected"),
    [
        (OPEN, None, True),
        (OPEN, "false", True),
        (OPEN, "locked", False),
        (NodeLock(is_tainted=True), None, False),
        (NodeLock(is_tainted=True), "false", False),
        (NodeLock(value="pending", is_tainted=True), "locked", True),
    ],
)
def test_what_stands_on_a_node_is_looked_at_where_the_bus_says_otherwise(
    lock: NodeLock, told: LockValue | None, *, expected: bool
) -> None:
    state = LockState(changed=T0, node="n1", kube_node="k1", lock=told) if told is not None else None

    assert is_as_published(lock, state) is expected
