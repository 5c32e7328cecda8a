"""The judge of the trials finds each breach: else a trial that passes would mean nothing."""

import msgspec
import pytest

from sunk_trials.flat import rising
from sunk_trials.plan import plan
from sunk_trials.verdict import Evidence, StoredFact, StoredState, fencing, judge
from sunk_trials.words import Line


def fact(number: int, *, at_ns: int = 0, leader: int = 1) -> StoredFact:
    return StoredFact(id=f"f{number}", key="n1", number=number, at_ns=at_ns or number * 10, token=str(leader))


def state(number: int, *, at_ns: int = 0, leader: int = 1) -> StoredState:
    return StoredState(
        key="n1", number=number, revision=number, at_ns=at_ns or number * 10 + 5, token=str(leader)
    )


def line(what: str, number: int) -> Line:
    return msgspec.convert([what, "n1", number, f"f{number}", number], Line)


GOOD = Evidence(
    facts=[fact(1), fact(2)],
    states=[state(1), state(2)],
    bucket={"n1": (2, 2)},
    written=[line("fact", 1), line("state", 1), line("fact", 2), line("state", 2)],
    seen=[line("seen", 1), line("seen", 1), line("seen", 2), line("seen", 1)],
    views={"reader": {"n1": (2, 2)}},
)


def test_deliveries_that_repeat_are_no_breach() -> None:
    assert judge(GOOD) == []


@pytest.mark.parametrize(
    ("change", "breach"),
    [
        pytest.param({"written": [line("fact", 3)]}, "the acknowledged fact f3 (3) is lost", id="lost fact"),
        pytest.param(
            {"written": [line("state", 3)]},
            "the acknowledged state n1=3 is lost: there is 2",
            id="lost state",
        ),
        pytest.param({"seen": [line("seen", 1)]}, "the fact f2 was never handled", id="skipped"),
        pytest.param(
            {"seen": [line("seen", 2), line("seen", 1)]},
            "n1 was handled out of order: f2 before f1",
            id="out of order",
        ),
        pytest.param(
            {"facts": [fact(1, at_ns=99), fact(2)]},
            "the state n1=1 was stored before its fact",
            id="state before fact",
        ),
        pytest.param({"states": [state(7)]}, "the state n1=7 has no fact", id="state without fact"),
        pytest.param(
            {"views": {"reader": {"n1": (1, 1)}}},
            "reader believes n1 to be (1, 1), it is (2, 2)",
            id="stale view",
        ),
        pytest.param(
            {"views": {"reader": {"n1": (2, 2), "n2": (1, 1)}}},
            "reader believes n2 to be (1, 1), it is None",
            id="view of what is gone",
        ),
    ],
)
def test_a_breach_is_named(change: dict[str, object], breach: str) -> None:
    assert judge(msgspec.structs.replace(GOOD, **change)) == [breach]


def test_a_fact_that_is_stored_twice_is_named() -> None:
    found = judge(msgspec.structs.replace(GOOD, facts=[fact(1), fact(2), fact(2)]))

    assert "the fact f2 is stored 2 times" in found
    assert "n1=2 was told 2 times" in found


def test_a_token_that_goes_backwards_is_a_second_leader() -> None:
    later, earlier = fact(1, leader=9), fact(2, leader=7)

    assert fencing([later, earlier], [state(1)]) == ["a fact of token 7 came after one of 9"]
    assert fencing([earlier, later], [state(1, leader=7), state(2, leader=9)]) == []


def test_a_seed_plans_the_same_each_time_and_another_one_otherwise() -> None:
    assert plan(7, faults=5, size=3) == plan(7, faults=5, size=3)
    assert plan(7, faults=5, size=3) != plan(8, faults=5, size=3)


@pytest.mark.parametrize(
    ("samples", "is_rising"),
    [
        pytest.param([50, 50, 51, 50, 50, 51, 50, 50], False, id="flat"),
        pytest.param([50, 52, 54, 56, 58, 60, 62, 64], True, id="a leak"),
        pytest.param([50, 50, 90, 90, 50, 50, 50, 50], False, id="a peak that went"),
        pytest.param([90, 80, 60, 50, 50, 50, 50, 50], False, id="falling"),
    ],
)
def test_what_rises_from_the_first_quarter_to_the_last_is_named(
    samples: list[float],
    is_rising: bool,  # noqa: FBT001 - a column of a table
) -> None:
    assert bool(rising("memory", samples, share=0.03, slack=2)) == is_rising
