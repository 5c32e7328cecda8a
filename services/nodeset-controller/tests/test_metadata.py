from datetime import timedelta

from msgspec.structs import replace

from sunk_kube.objects import Condition, ObjectMeta
from sunk_kube.testing import T0
from sunk_nodeset_controller.metadata import MetadataPatch, cut, patch

LATER = T0 + timedelta(hours=1)
DRAIN = Condition(type="SlurmDrain", status="True", reason="Drained", message="bad", last_transition_time=T0)


def test_what_stands_already_is_not_written() -> None:
    meta = ObjectMeta(labels={"a": "b", "x": "theirs"}, annotations={"c": "d"})
    wanted = MetadataPatch(
        labels={"a": "b", "gone": None},
        annotations={"c": "d"},
        conditions=(Condition(type="SlurmDrain", status="True", reason="Drained", message="bad"),),
        removed=("Old",),
    )

    assert patch(meta, (DRAIN,), wanted, LATER) is None


def test_only_the_difference_is_written_in_one_patch() -> None:
    wanted = MetadataPatch(
        labels={"a": "c", "b": None, "same": "1"},
        conditions=(Condition(type="SlurmDrain", status="False", reason="NotDrained"),),
        removed=("Old",),
    )
    found = patch(
        ObjectMeta(labels={"a": "b", "b": "b", "same": "1"}), (DRAIN, Condition(type="Old")), wanted, LATER
    )

    assert found == {
        "metadata": {"labels": {"a": "c", "b": None}},
        "status": {
            "conditions": [
                {
                    "type": "SlurmDrain",
                    "status": "False",
                    "reason": "NotDrained",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T13:00:00Z",
                },
                {"type": "Old", "$patch": "delete"},
            ]
        },
    }


def test_a_new_message_does_not_move_the_time_of_a_status() -> None:
    wanted = MetadataPatch(
        conditions=(Condition(type="SlurmDrain", status="True", reason="Drained", message="new"),)
    )
    found = patch(ObjectMeta(), (DRAIN,), wanted, LATER)

    assert found is not None
    assert found["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_somebody_elses_condition_is_copied_with_its_time() -> None:
    check = Condition(type="HPCVerification", status="True", last_transition_time=LATER)

    assert patch(ObjectMeta(), (check,), MetadataPatch(conditions=(check,)), LATER) is None
    found = patch(
        ObjectMeta(),
        (Condition(type="HPCVerification", status="True"),),
        MetadataPatch(conditions=(check,)),
        T0,
    )
    assert found is not None
    assert found["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T13:00:00Z"


def test_a_condition_of_others_is_written_only_on_the_version_that_was_seen() -> None:
    """They may have written a newer one since."""
    meta = ObjectMeta(resource_version="7")
    check = Condition(type="HPCVerification", status="True", last_transition_time=T0)
    own = replace(DRAIN, last_transition_time=None)

    copied = patch(meta, (), MetadataPatch(labels={"a": "b"}, conditions=(own, check)), LATER)
    ours = patch(meta, (check,), MetadataPatch(conditions=(own, check)), LATER)

    assert copied is not None
    assert copied["metadata"] == {"labels": {"a": "b"}, "resourceVersion": "7"}
    assert ours is not None
    assert "metadata" not in ours


def test_a_long_reason_is_cut_by_bytes_and_never_within_a_letter() -> None:
    assert cut("é" * 10, 5) == "éé"
