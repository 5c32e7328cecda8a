"""Messages of the bus, changed at random with their form in mind, are read or refused; nothing else happens.

The gateway's calls are in its own `test_openapi.py`. `./task test:nightly` takes many more examples.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import REQUESTS, STATES
from sunk_events.codec import (
    UndecodableError,
    decode_event,
    decode_fact,
    decode_reply,
    decode_request,
    decode_state,
    encode,
)

GOLDEN: Final = sorted((Path(__file__).parent / "golden").glob("*.json"))
DOCUMENTS: Final = [json.loads(path.read_bytes()) for path in GOLDEN]
FEW: Final = 150
MANY: Final = 50_000
LINE: Final = 2000
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

T = TypeVar("T")


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


def read(decode: Callable[[bytes], T], data: bytes) -> T | None:
    """Return what *data* says; None if it is refused in words that fit a log line."""
    refused = ""
    try:
        return decode(data)
    except UndecodableError as error:
        refused = str(error)
    assert 0 < len(refused) < LINE
    return None


def fuzzed(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what takes so many examples: in each run the same few, or new ones."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples == FEW,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


few_and_many = pytest.mark.parametrize(
    "examples", [FEW, pytest.param(MANY, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)


def test_a_long_value_is_refused_in_words_that_fit_a_log_line_and_name_the_field() -> None:
    with pytest.raises(UndecodableError, match=r"specversion") as refused:
        decode_event(json.dumps({**DOCUMENTS[0], "specversion": "x" * 5000}).encode())

    assert len(str(refused.value)) < 2000


@few_and_many
def test_a_message_is_read_or_refused_and_what_was_read_is_the_same_when_it_is_read_again(
    examples: int,
) -> None:
    @fuzzed(examples)
    @given(changed(DOCUMENTS), st.sampled_from([*STATES]), st.sampled_from([*REQUESTS]))
    def is_read_or_refused(data: bytes, state: type[State], request: type[Request]) -> None:
        ways: list[Callable[[bytes], Event | State | Request | Reply]] = [
            decode_event,
            decode_reply,
            lambda text: decode_state(state, text),
            lambda text: decode_request(request, text),
        ]

        found = [(way, message) for way in ways if (message := read(way, data)) is not None]

        assert len(found) <= 1
        for way, message in found:
            assert way(encode(message)) == message

    is_read_or_refused()


@few_and_many
def test_a_fact_on_any_subject_is_read_or_refused(examples: int) -> None:
    @fuzzed(examples)
    @given(changed(DOCUMENTS), st.text(max_size=60) | st.sampled_from(["sunk.ev.c1.slurm.node.n1.drained"]))
    def is_read_or_refused(data: bytes, subject: str) -> None:
        read(lambda text: decode_fact(subject, text), data)

    is_read_or_refused()


@pytest.mark.parametrize("data", [DEEP.encode(), b'{"type":' + DEEP.encode(), b"9" * 5000, b"\xff" * 9])
def test_what_is_no_message_at_all_is_refused(data: bytes) -> None:
    assert read(decode_event, data) is None
    assert read(decode_reply, data) is None
