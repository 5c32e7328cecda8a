"""The pictures of the dashboards are SVG that any browser reads, whatever a series is called."""

import math
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

PANELS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "panels.py"))
"""Of a script that is in no package, so its types are not known here."""
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = 'a "b" <c> & \u2603'


def drawn(*lines: tuple[str, tuple[tuple[float, float], ...]]) -> ET.Element:
    panel = PANELS["Panel"]("GPUs & more", "short", tuple(PANELS["Line"](*line) for line in lines))
    return ET.fromstring(PANELS["page"]("Cluster", (panel,)))  # noqa: S314 - our own


def texts(root: ET.Element) -> set[str]:
    return {(found.text or "").strip() for found in root.iter(f"{SVG}text")}


def runs(root: ET.Element) -> list[int]:
    """Return how many points each run of a series has."""
    groups = [found for found in root.iter(f"{SVG}g") if found.get("id", "").startswith("line-")]
    lines = [path.attrib["d"] for group in groups for path in group.iter(f"{SVG}path")]
    return [run.count("L") + 1 for line in lines for run in line.split("M") if run.strip()]


def test_each_series_is_a_line_and_is_named_as_it_is() -> None:
    root = drawn((HOSTILE, ((0, 1), (30, 2), (60, 4))), ("other", ((0, 5), (60, 5))))

    assert runs(root) == [3, 2]
    assert {"Cluster", "GPUs & more", HOSTILE, "other"} <= texts(root)


def test_a_value_that_is_no_number_is_a_gap_and_not_a_zero() -> None:
    root = drawn(
        ("age", ((0, 1), (10, 2), (20, math.inf), (30, 2), (35, 1), (40, math.nan), (50, 1), (60, 1)))
    )

    assert runs(root) == [2, 2, 2]


def test_a_panel_without_data_says_so() -> None:
    root = drawn()

    assert runs(root) == []
    assert "no data" in texts(root)


def test_of_many_series_all_are_drawn_and_those_without_a_name_are_counted() -> None:
    root = drawn(*((f"n{number}", ((0.0, 1.0), (60.0, 1.0))) for number in range(25)))

    assert len(runs(root)) == 25
    assert "n9, and 15 more" in texts(root)


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.25, "percentunit", "25 %"),
        (0.004, "s", "4 ms"),
        (5400.0, "s", "1.5 h"),
        (0.0, "s", "0 s"),
        (1500.0, "short", "1.5k"),
        (20.0, "reqps", "20/s"),
    ],
)
def test_axes_speak_in_the_panels_unit(value: float, unit: str, said: str) -> None:
    assert PANELS["spelled"](value, unit) == said
