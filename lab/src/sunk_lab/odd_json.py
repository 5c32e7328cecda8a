"""JSON changed at random with its form in mind, for tests of what reads it."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

FEW: Final = 150
MANY: Final = 50_000
DEEP: Final = "[" * 3000
"""Deeper than Python reads."""
_ODD: Final[list[Any]] = [
    None,
    True,
    -1,
    0,
    2**63,
    1e308,
    "",
    "\x00",
    "﷽" * 50,
    "../../..",
    "x" * 5000,
    [],
    {},
    [[[]]],
    {"": {}},
]
ODD: Final = st.sampled_from(_ODD).map(deepcopy)
"""What is not expected where something else stood; a copy, because later changes go into it."""


@st.composite
def changed(draw: st.DrawFn, documents: list[Any]) -> bytes:
    """Return one of *documents* with a few changes, or with none."""
    document = json.loads(json.dumps(draw(st.sampled_from(documents))))
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, document)
    data = json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
    match draw(st.sampled_from(["whole", "whole", "whole", "cut", "byte", "deep"])):
        case "cut":
            return data[: draw(st.integers(0, len(data)))]
        case "byte":
            at = draw(st.integers(0, len(data) - 1))
            return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        case "deep":
            return data[:-1] + b',"more":' + DEEP.encode() + b"}"
        case _:
            return data


def _change(draw: st.DrawFn, document: Any) -> None:  # noqa: ANN401 - JSON has every shape
    """Change one place of *document*: another value, a value of another place, no value, or a new name."""
    places = [*_places(document)]
    if not places:
        return
    inside, key = draw(st.sampled_from(places))
    other_inside, other = draw(st.sampled_from(places))
    match draw(st.sampled_from(["odd", "swap", "drop", "name"])):
        case "odd":
            inside[key] = draw(ODD)
        case "swap":
            inside[key] = json.loads(json.dumps(other_inside[other]))
        case "drop" if isinstance(inside, dict):
            del inside[key]
        case "name" if isinstance(inside, dict):
            inside[draw(st.text(max_size=9))] = draw(ODD)
        case _:
            inside[key] = None


def _places(document: Any) -> Any:  # noqa: ANN401 - JSON has every shape
    """Yield each place in *document*: what it is in, and its key there."""
    if isinstance(document, dict):
        found = cast("dict[Any, Any]", document)
        pairs = list(found.items())
    elif isinstance(document, list):
        found = cast("list[Any]", document)
        pairs = list(enumerate(found))
    else:
        return
    for key, value in pairs:
        yield found, key
        yield from _places(value)


def fuzzed(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what gives a test so many examples: in each run the same few, or new ones."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples == FEW,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


few_and_many = pytest.mark.parametrize(
    "examples", [FEW, pytest.param(MANY, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
