"""Why a node is down, kept while a drain of ours has the place of its reason."""

import pytest

from sunk_slurm.down_reasons import down_reason, keeps_down_reason, with_down_reason


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
    assert keeps_down_reason(after) is bool(down_reason(before))


def test_a_reason_that_stands_alone_keeps_none() -> None:
    assert not any(map(keeps_down_reason, ("", "bad dimm", "a; was down: b", "k8s: requeue of job 7")))


def test_it_is_cut_once() -> None:
    cut = with_down_reason("k8s: cordon", "x" * 1024, limit=100)

    assert len(cut) == 100
    assert with_down_reason("k8s: cordon", cut, limit=100) == cut
