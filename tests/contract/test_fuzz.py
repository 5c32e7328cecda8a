"""Messages of the bus, changed at random with their form in mind, are read or refused; nothing else happens.

The gateway's calls are in its own `test_openapi.py`. `./task test:nightly` takes many more examples.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import given
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
from sunk_lab.odd_json import DEEP, changed, few_and_many, fuzzed

GOLDEN: Final = sorted((Path(__file__).parent / "golden").glob("*.json"))
DOCUMENTS: Final = [json.loads(path.read_bytes()) for path in GOLDEN]
LINE: Final = 2000

T = TypeVar("T")


def read(decode: Callable[[bytes], T], data: bytes) -> T | None:
    """Return what *data* says; None if it is refused in words that fit a log line."""
    refused = ""
    try:
        return decode(data)
    except UndecodableError as error:
        refused = str(error)
    assert 0 < len(refused) < LINE
    return None


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
