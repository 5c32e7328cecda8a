"""How far a reader is, as text."""

import math

import pytest

from sunk_view.positions import GOOD_S, LAG_S, Position, is_good, key_of, mark, read, row_secret, written

AT = Position(mark=mark(["2026-01-01", "2026-01-02"]), time_s=1000, revisions=(5, 0, 7))


def test_what_is_written_is_read_again_for_each_cluster() -> None:
    found = {"c1": AT, "c-2": Position(mark="ab", time_s=1, revisions=(2**63,))}

    assert read(written(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c1",
        "c1.a.1",
        "c1.a.1.",
        "c1.a.1.-1",
        "c1.a.x.1",
        "c1.a/b.1.1",
        "c1.a.1.1,",
        "c" * 9000,
        "c1.a.1.²",
    ],
)
def test_what_was_never_written_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"|."):
        read(text)


@pytest.mark.parametrize(
    ("known", "good"),
    [
        (AT, True),
        (None, False),
        (Position(mark=mark(["2026-01-01", "2026-01-03"]), time_s=1000, revisions=(5, 0, 7)), False),
        (Position(mark=AT.mark, time_s=1000, revisions=(5, 0)), False),
        (Position(mark=AT.mark, time_s=1000 - GOOD_S - 1, revisions=(5, 0, 7)), False),
        (Position(mark=AT.mark, time_s=1000 + GOOD_S + 1, revisions=(5, 0, 7)), False),
    ],
)
def test_a_position_counts_for_the_same_buckets_and_a_limited_time(
    known: Position | None,
    good: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert is_good(known, AT) is good


@pytest.mark.parametrize(
    ("went_back_s", "good"), [(LAG_S + 1, True), (LAG_S, False), (0.0, False), (math.inf, True)]
)
def test_a_position_from_before_a_bucket_went_back_does_not_count(
    went_back_s: float,
    good: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert is_good(AT, AT, went_back_s=went_back_s) is good


@pytest.mark.parametrize(("known_s", "good"), [(60.0, True), (5.5, True), (3.5, False), (-math.inf, False)])
def test_a_position_from_before_a_replica_knew_the_bucket_does_not_count(
    known_s: float,
    good: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    later = Position(mark=AT.mark, time_s=AT.time_s + 5, revisions=AT.revisions)

    assert is_good(AT, later, known_s=known_s) is good


def test_a_key_of_a_row_does_not_say_the_uid_and_cannot_be_guessed_without_the_secret() -> None:
    ours, theirs = row_secret(b"private key"), row_secret(b"another")

    assert key_of("uid-1", ours) != key_of("uid-2", ours)
    assert key_of("uid-1", ours) != key_of("uid-1", theirs)
    assert "uid" not in key_of("uid-1", ours)


def test_a_position_says_by_which_secret_the_keys_of_rows_are_made() -> None:
    assert mark(["2026"], row_secret(b"a")) == mark(["2026"], row_secret(b"a"))
    assert mark(["2026"], row_secret(b"a")) != mark(["2026"], row_secret(b"b"))
