import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sunk_events.base import ID_MAX, event_id

names = st.text(st.sampled_from(":=% \r\n\t.a0é\U0001f600"), max_size=253) | st.text(max_size=253)


def test_the_same_fact_has_the_same_id() -> None:
    assert event_id("node_drained", "gpu-000-012", 1718) == "node_drained:gpu-000-012:1718"


@given(names)
def test_every_id_is_one_line_of_a_header_and_not_too_long(name: str) -> None:
    made = event_id("node_drained", name, 1718)

    assert made.isascii()
    assert made.isprintable()
    assert " " not in made
    assert len(made) <= ID_MAX


@given(st.tuples(names, names), st.tuples(names, names))
def test_two_facts_never_share_an_id(one: tuple[str, str], other: tuple[str, str]) -> None:
    assume(one != other)

    assert event_id("fact", *one) != event_id("fact", *other)


@pytest.mark.parametrize(("one", "other"), [("a b", "a=20b"), ("x\r", "x\n"), ("n" * 600, "n" * 601)])
def test_what_is_escaped_or_cut_is_still_told_apart(one: str, other: str) -> None:
    assert event_id(one) != event_id(other)
