"""The drawings of stories and states: readable in light and in dark, in words too, and never stale."""

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from sunk_events import subjects
from sunk_events.nodes import SlurmPartitionState

ROOT: Final = Path(__file__).parents[2]
SVG: Final = "{http://www.w3.org/2000/svg}"
DRAWN: Final = sorted((ROOT / "docs/pictures").rglob("*.svg"))
PAGES: Final = ("locks", "placements", "stories")
LETTER: Final = 7.3
HOSTILE: Final = 'a "b" <c> & \u2603'


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The drawing code, which is in no package, with what else it imports from its folder."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    yield import_module("drawings")
    for name in ("drawings", "calls", "generated", "gen_stories"):
        sys.modules.pop(name, None)


def texts(root: ET.Element) -> list[ET.Element]:
    return list(root.iter(f"{SVG}text"))


def span(text: ET.Element) -> tuple[float, float]:
    """Return where a text begins and ends, with letters of one width."""
    x, length = float(text.attrib["x"]), len(text.text or "") * LETTER
    begin = {"start": x, "middle": x - length / 2, "end": x - length}[text.get("text-anchor", "start")]
    return begin, begin + length


def uprights(root: ET.Element) -> Iterator[tuple[float, float, float]]:
    """Yield x and both ends of each vertical piece of a line."""
    for path in root.iter(f"{SVG}path"):
        if path.get("class") == "line" and (found := re.search(r"H([\d.]+)V([\d.]+)", path.attrib["d"])):
            begin = float(re.findall(r"[\d.]+", path.attrib["d"])[1])
            end = float(found[2])
            yield float(found[1]), min(begin, end), max(begin, end)


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: str(file.relative_to(ROOT / "docs/pictures")))
def test_a_drawing_has_its_words_and_each_is_inside(file: Path) -> None:
    root = ET.fromstring(file.read_text())  # noqa: S314 - our own

    assert len(root.findtext(f"{SVG}title") or "") > 10
    assert len(root.findtext(f"{SVG}desc") or "") > 100
    assert root.get("role") == "img"
    outside = [
        text.text
        for text in texts(root)
        if not 0 <= span(text)[0] <= span(text)[1] <= float(root.attrib["width"])
    ]
    assert outside == []


@pytest.mark.parametrize("name", ["lock.svg", "placement.svg"])
def test_no_line_of_a_state_diagram_goes_through_a_word(name: str) -> None:
    root = ET.fromstring((ROOT / "docs/pictures" / name).read_text())  # noqa: S314 - our own
    lines = list(uprights(root))

    assert len(lines) > 5
    crossed = [
        (text.text, x)
        for text in texts(root)
        for x, top, bottom in lines
        if span(text)[0] < x < span(text)[1] and top < float(text.attrib["y"]) - 4 < bottom
    ]
    assert crossed == []


def brightness(colour: str) -> float:
    """Return the relative luminance of WCAG."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((brightness(one), brightness(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_and_lines_stand_out_from_what_is_behind_them(tools: ModuleType, scheme: int) -> None:
    colour: dict[str, str] = {name: pair[scheme] for name, pair in tools.COLOURS.items()}

    pairs = [(word, ground) for word in ("word", "wire") for ground in ("ground", "note", "box")]
    assert [pair for pair in pairs if contrast(colour[pair[0]], colour[pair[1]]) < 4.5] == []
    assert contrast(colour["line"], colour["ground"]) >= 3


def test_a_drawing_is_the_same_each_time_and_shows_hostile_words_as_they_are(tools: ModuleType) -> None:
    row: Any = tools.Message(HOSTILE, ("other",), HOSTILE, HOSTILE)
    drawn = tools.sequence(HOSTILE, [HOSTILE, "other"], [row])
    states = tools.ladder("States", [tools.START, HOSTILE, "b", "c"], [tools.Change(HOSTILE, "c", HOSTILE)])

    assert drawn == tools.sequence(HOSTILE, [HOSTILE, "other"], [row])
    for text in (drawn, states):
        root = ET.fromstring(text)  # noqa: S314 - our own
        assert {"a", HOSTILE} & {(found.text or "").strip() for found in texts(root)}
        assert HOSTILE in (root.findtext(f"{SVG}desc") or "")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_its_drawings_and_says_what_they_show(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text()
    shown = re.findall(r"!\[([^\]]+)\]\((pictures/[\w/-]+\.svg)\)\n\n(\|)?", text)

    assert shown
    assert [file for _, file, _ in shown if not (ROOT / "docs" / file).is_file()] == []
    assert all("The table below has the same" in said and table for said, _, table in shown)


def test_every_drawing_is_shown_on_a_page() -> None:
    pages = "".join((ROOT / f"docs/{page}.md").read_text() for page in PAGES)

    assert DRAWN
    assert [str(file) for file in DRAWN if str(file.relative_to(ROOT / "docs")) not in pages] == []


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("renamed", "file"), [("questions", "lock"), ("facts", "cordon"), ("any_key", "metrics")]
)
def test_a_subject_that_is_renamed_makes_page_and_drawing_stale(
    monkeypatch: pytest.MonkeyPatch, renamed: str, file: str
) -> None:
    stories = import_module("gen_stories")
    fresh = stories.pages()
    named: Callable[..., str] = getattr(subjects, renamed)

    def changed(*given: Any) -> str:  # noqa: ANN401 - what each of them is given
        return f"{named(*given)}.new"

    monkeypatch.setattr(subjects, renamed, changed)

    again = stories.pages()

    assert {stories.PAGE, stories.PICTURES / f"{file}.svg"} <= {
        path for path in fresh if fresh[path] != again[path]
    }


@pytest.mark.usefixtures("tools")
def test_a_step_that_a_service_may_not_take_ends_the_generator() -> None:
    stories = import_module("gen_stories")

    with pytest.raises(SystemExit, match="syncer has nothing to do with SlurmPartitionState"):
        stories.messages((stories.Stored(SlurmPartitionState, ("syncer",)),))
    with pytest.raises(SystemExit, match="hook-gateway has nothing to do with prehook 418"):
        stories.messages((stories.HookAnswered("prehook", 418, "418"),))
