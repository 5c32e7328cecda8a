"""The pictures of traces in the docs show what the story's traces have (`tests/e2e/test_traces.py`)."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sunk_lab.story.traces import ANSWERS, COLOURS, WAYS, Step, picture, shown

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "{http://www.w3.org/2000/svg}text"


def texts(svg: str) -> list[str]:
    return [(found.text or "").strip() for found in ET.fromstring(svg).iter(TEXT)]  # noqa: S314 - our own


@pytest.mark.parametrize("way", WAYS)
def test_the_picture_has_a_row_for_each_span_and_its_page_shows_it(way: str) -> None:
    """`./task pictures:traces` draws it anew."""
    title, *rows = texts((DOCS / "traces" / f"{way}.svg").read_text())

    assert title == WAYS[way][0]
    assert list(zip(rows[::3], rows[1::3], strict=True)) == list(WAYS[way][1])
    assert f"(traces/{way}.svg)" in (DOCS / "traces.md").read_text()


def test_of_spans_that_are_alike_the_first_is_shown_and_a_trace_that_lacks_one_is_not() -> None:
    kinds = WAYS["cordon"][1]
    trace = [Step(service, name, 10.0 * number, 100.0) for number, (service, name) in enumerate(kinds)]

    assert shown([*trace, trace[1]._replace(start_ms=70.0)], "cordon") == trace
    assert shown(trace[1:], "cordon") is None


def test_a_prologs_answer_may_be_in_the_trace_of_a_later_call() -> None:
    trace = [
        Step(service, name, 10.0 * number, 100.0) for number, (service, name) in enumerate(WAYS["lock"][1])
    ]
    without = [step for step in trace if (step.service, step.name) != ANSWERS]

    assert len(without) == len(trace) - 1
    assert (shown(trace, "lock"), shown(without, "lock")) == (trace, without)
    assert shown(trace[1:], "lock") is None


def test_what_a_span_is_called_is_text_and_its_bar_begins_where_it_began() -> None:
    spans = [Step("syncer", "a < b & c", 0.0, 500.0), Step("syncer", "late", 1250.0, 2000.0)]

    rows = texts(picture(spans, "cordon"))[1:]

    assert rows == ["syncer", "a < b & c", "0 ms", "syncer", "late", "1.2 s"]
    assert {service for _, kinds in WAYS.values() for service, _ in kinds} <= set(COLOURS)
