import pytest

from sunk_runtime.losses import is_mass_loss


@pytest.mark.parametrize(
    ("missing", "known", "expected"),
    [(0, 0, False), (3, 4, False), (4, 4, True), (10, 100, False), (11, 100, True), (4, 39, True)],
)
def test_a_few_may_go_at_once_and_a_tenth_of_many(missing: int, known: int, *, expected: bool) -> None:
    assert is_mass_loss(missing, known, percent=10, few=3) is expected


@pytest.mark.parametrize("known", range(1, 400))
def test_a_share_that_is_a_whole_number_is_not_exceeded_by_itself(known: int) -> None:
    for percent in (5, 10, 50):
        allowed = known * percent // 100
        assert not is_mass_loss(allowed, known, percent=percent)
        assert is_mass_loss(allowed + 1, known, percent=percent)
