"""What stands in a node's Extra."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_events.nodesets import Condition, KubePodState
from sunk_slurm.wire import Features
from sunk_syncer.policy.extra import content, features, is_current, merged, parsed
from sunk_syncer.testing.stage import ready_pod

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
POD = replace(ready_pod("n1", changed=T0), features=("zone-a", "h100"))
LOCKED = LockState(changed=T0, node="n1", kube_node="k1", lock="locked")


def written(
    text: str, pod: KubePodState = POD, lock: LockState | None = None
) -> dict[str, Any]:  # Any: JSON.
    return json.loads(merged(parsed(text), content(pod, lock), T0))


def test_it_says_what_kubernetes_knows_of_the_node() -> None:
    condition = Condition(type="GPUHealthy", status="False", reason="Xid", message="x" * 999, changed=T0)
    pod = replace(POD, is_cordoned=True, cordon_reason="disk", node_conditions=(condition,))

    assert written("", pod, LOCKED) == {
        "sunk": {
            "pod": "n1",
            "namespace": "slurm",
            "node": "k1",
            "nodeset": "compute",
            "ready": True,
            "conditions": {},
            "nodeConditions": {
                "GPUHealthy": {
                    "status": "False",
                    "reason": "Xid",
                    "message": "x" * 200,
                    "since": "2026-01-05T12:00:00Z",
                }
            },
            "cordonReason": "disk",
            "lock": "locked",
            "features": ["h100", "zone-a"],
            "updatedAt": "2026-01-05T12:00:00Z",
        }
    }


def test_conditions_that_come_from_slurm_are_not_told_back() -> None:
    pod = replace(POD, conditions=(Condition(type="SlurmRunning", status="True"),))

    assert written("", pod)["sunk"]["conditions"] == {}


def test_a_users_keys_stay_and_ours_wins() -> None:
    text = '{"team": {"name": "a", "n": 1.0}, "sunk": "mine", "b": null}'

    found = written(text)

    assert (found["team"], found["b"], found["sunk"]["pod"]) == ({"name": "a", "n": 1.0}, None, "n1")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("hello", id="no JSON"),
        pytest.param('["a"]', id="a list"),
        pytest.param("null", id="null"),
        pytest.param('{"a": 1', id="cut off"),
        pytest.param('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", id="nested without end"),
        pytest.param("[" * 100_000, id="brackets without end"),
    ],
)
def test_what_is_no_json_object_is_replaced(text: str) -> None:
    assert parsed(text).users is None
    assert list(written(text)) == ["sunk"]


def test_an_extra_of_200_kb_stays_whole() -> None:
    text = json.dumps({"log": "x" * 200_000, "deep": json.loads("[" * 50 + "]" * 50)})

    assert {key: value for key, value in written(text).items() if key != "sunk"} == json.loads(text)


def test_nothing_is_written_when_only_time_has_passed() -> None:
    wanted = content(POD, LOCKED)
    text = merged(parsed('{"team": "a"}'), wanted, T0)

    assert is_current(parsed(text), wanted)
    assert not is_current(parsed(text), content(POD, None))
    assert not is_current(parsed(""), wanted)
    assert not is_current(parsed("hello"), wanted)


def test_features_of_the_nodeset_come_and_go_and_a_users_stay() -> None:
    there = parsed(merged(parsed(""), content(POD, None), T0))
    wanted = content(replace(POD, features=("h100", "zone-b")), None)

    assert features(there, wanted, all_active("h100", "zone-a", "mine")) == all_active(
        "h100", "mine", "zone-b"
    )
    assert features(there, wanted, all_active("zone-b", "h100")) is None
    assert features(parsed(""), wanted, all_active()) == all_active("h100", "zone-b")
    nothing = content(replace(POD, features=()), None)
    assert features(there, nothing, all_active("h100", "zone-a")) == all_active()


def test_a_feature_of_a_user_that_is_not_active_stays_available_and_asleep() -> None:
    there = parsed(merged(parsed(""), content(POD, None), T0))
    wanted = content(replace(POD, features=("h100", "zone-b")), None)
    asleep = Features(("asleep", "h100", "mine", "zone-a"), ("h100", "mine", "zone-a"))

    after = features(there, wanted, asleep)

    assert after == Features(("asleep", "h100", "mine", "zone-b"), ("h100", "mine", "zone-b"))
    assert after is not None
    assert features(there, wanted, after) is None


def all_active(*words: str) -> Features:
    return Features(words, words)


jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), jsons, max_size=4), st.integers(0, 999_999))
def test_a_merge_changes_nothing_of_the_users_and_is_stable(users: dict[str, Any], later_s: int) -> None:
    wanted = content(POD, LOCKED)
    text = merged(parsed(json.dumps(users)), wanted, T0)
    again = merged(parsed(text), wanted, T0 + timedelta(seconds=later_s))

    assert is_current(parsed(text), wanted)
    assert {k: v for k, v in json.loads(again).items() if k != "sunk"} == {
        k: v for k, v in users.items() if k != "sunk"
    }


@given(st.text(max_size=60))
def test_whatever_stands_there_the_result_is_an_object_that_is_current(text: str) -> None:
    wanted = content(POD, None)

    assert is_current(parsed(merged(parsed(text), wanted, T0)), wanted)
