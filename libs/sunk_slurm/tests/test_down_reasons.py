"""Why a node is down, kept while a drain of ours has the place of its reason."""

import pytest

from sunk_slurm.down_reasons import down_reason, is_down_by_others, keeps_down_reason, with_down_reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("bad dimm", "k8s: cordon; was down: bad dimm"),
        ("", "k8s: cordon"),
        ("k8s: pod terminated", "k8s: cordon"),
        ("k8s: pod terminated; was down: bad dimm", "k8s: cordon; was down: bad dimm"),
        ("k8s: requeue of job 7", "k8s: cordon; was down: k8s: requeue of job 7"),
        ("bad; was down: dimm", "k8s: cordon; was down: bad; was down: dimm"),
    ],
)
def test_why_a_node_is_down_outlives_a_drain_and_another(before: str, after: str) -> None:
    assert with_down_reason("k8s: cordon", before, limit=1024) == after
    assert with_down_reason("k8s: cordon", after, limit=1024) == after
    assert down_reason(after) == down_reason(before)


@pytest.mark.parametrize(
    ("reason", "is_kept"),
    [
        ("k8s: cordon; was down: bad dimm", True),
        ("k8s: pod terminated; was down: Not responding", True),
        ("k8s: cordon; was down: k8s: requeue of job 7", False),
        ("k8s: requeue of job 7", False),
        ("k8s: cordon", False),
        ("bad dimm", False),
        ("a; was down: b", False),
        ("", False),
    ],
)
def test_a_drain_of_ours_stays_while_the_node_is_down_and_its_reason_keeps_why(
    reason: str, *, is_kept: bool
) -> None:
    assert keeps_down_reason(reason, is_down=True) is is_kept
    assert not keeps_down_reason(reason, is_down=False)


def test_it_is_cut_once() -> None:
    cut = with_down_reason("k8s: cordon", "x" * 1024, limit=100)

    assert len(cut) == 100
    assert with_down_reason("k8s: cordon", cut, limit=100) == cut


@pytest.mark.parametrize(
    ("reason", "by_others"),
    [
        ("bad dimm", True),
        ("k8s: cordon; was down: bad dimm", True),
        ("reboot complete", True),  # An administrator asked for `nextstate=DOWN`.
        ("", False),
        ("undrained", False),
        ("k8s: pod terminated", False),
        ("k8s: requeue of job 7", False),
        ("k8s: cordon; was down: k8s: requeue of job 7", False),
        ("Not responding", False),
        ("undrained : Not responding", False),
        ("bad dimm : Not responding", False),  # 24.11 keeps the reason of a drain that was lifted.
        ("k8s: cordon; was down: Not responding", False),
        ("Node unexpectedly rebooted", False),
        ("bad dimm : Node unexpectedly rebooted : reboot timed out", False),
    ],
)
def test_what_slurm_or_we_set_down_is_told_from_what_others_did(reason: str, *, by_others: bool) -> None:
    assert is_down_by_others(reason) is by_others
