"""What was done lately is remembered until what follows from it is told."""

import time

import pytest

from sunk_events.base import UNKNOWN, Cause
from sunk_events.nodes import NodeIdle, NodeSnapshot
from sunk_slurm.testing import T0
from sunk_syncer.adapters.expected import EXPECTED_S, Expected, named


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: times[0])
    return times


def test_what_was_done_is_remembered_for_a_while_and_longer_where_it_may_last(clock: list[float]) -> None:
    done = Expected[str | int]()
    done.expect("n1", "undrain")
    done.expect("n1", "drain")  # The last of its kind.
    done.expect("n1", 1)
    assert done.of("n1") == ("drain", 1)

    clock[0] += EXPECTED_S + 1

    assert done.of("n1", may_last=lambda what: what == "drain") == ("drain",)
    assert done.of("n1") == ()
    assert done.of("n2") == ()


def test_what_was_told_is_forgotten_and_nothing_else() -> None:
    done = Expected[str | int]()
    done.expect("n1", "drain")
    done.expect("n1", 1)

    done.forget("n1", lambda what: what == 1)
    assert done.of("n1") == ("drain",)

    done.forget("n1")
    done.forget("n1")
    assert done.of("n1") == ()


def test_a_cause_counts_as_named_where_a_fact_names_it() -> None:
    snapshot = NodeSnapshot(node="n1", state="IDLE")
    fact = NodeIdle(id="a", source="/c/s", subject="n1", time=T0, cause="b", data=snapshot)
    first, second = Cause("a"), Cause("b", "trace")

    assert named([fact], [first, second]) == second
    assert named([fact], [first]) == UNKNOWN
    assert named([], [first]) == UNKNOWN
