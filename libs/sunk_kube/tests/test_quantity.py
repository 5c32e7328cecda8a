import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_kube.quantity import number, total


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1500m", "1.5", id="milli"),
        pytest.param("4Gi", "4294967296", id="binary"),
        pytest.param("4G", "4000000000", id="decimal"),
        pytest.param("0.1", "0.1", id="fraction, exactly"),
        pytest.param(".5", "0.5", id="no leading zero"),
        pytest.param("1e3", "1000", id="exponent"),
        pytest.param("1E3", "1000", id="upper-case exponent"),
        pytest.param("1E", "1000000000000000000", id="exa is no exponent"),
        pytest.param("-2Ki", "-2048", id="negative"),
        pytest.param(3, "3", id="a bare number"),
    ],
)
def test_reads_every_spelling(text: str | int, expected: str) -> None:
    assert number(text) == Decimal(expected)


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "abc", "1.2.3", "٣", "--1", "NaN", "Infinity"])
def test_refuses_what_is_no_quantity_and_names_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        number(text)


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert number(text).is_finite()


def test_sums_by_resource() -> None:
    assert total([{"cpu": "250m"}, {"cpu": 1, "memory": "1Mi"}]) == {
        "cpu": Decimal("1.25"),
        "memory": Decimal(1048576),
    }
