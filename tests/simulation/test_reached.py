"""Branches of decisions that were taken are known, and seeds go to the stories that find what is new."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from sunk_simulation import reached
from sunk_simulation.reached import Reached
from sunk_simulation.steering import EVERY, Steering

CODE = '''"""Decides."""


def decide(state: str, *, is_due: bool) -> str:
    """Say what is to be done."""
    if is_due:
        return "act"
    match state:
        case "busy":
            return "wait" if state else "never"
        case _:
            pass
    return "look"
'''


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A room with one module, whose branches are marked."""
    (tmp_path / "a_room").mkdir()
    (tmp_path / "a_room" / "__init__.py").write_text("")
    (tmp_path / "a_room" / "decide.py").write_text(CODE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "a_room.decide", raising=False)
    monkeypatch.setattr(sys, "meta_path", [reached.finder(["a_room"]), *sys.meta_path])
    monkeypatch.setattr(reached, "_known", {})
    return "a_room.decide"


def test_a_branch_is_reached_that_was_taken(room: str) -> None:
    decide = importlib.import_module(room).decide
    reached.begin()

    assert (decide("busy", is_due=False), decide("", is_due=False)) == ("wait", "look")
    assert reached.present().branches == {
        "a_room.decide:4 def decide",
        "a_room.decide:6 if no",
        "a_room.decide:9 case",
        "a_room.decide:10 if yes",
        "a_room.decide:11 case",
    }
    assert reached.summary(reached.present())[1:] == [
        "5 of 7 branches of decisions",
        "  a_room.decide: 5 of 7; not: 6 if yes, 10 if no",
    ]


def test_rooms_that_decide_are_those_that_import_linter_keeps_from_io() -> None:
    code = (
        "from sunk_simulation import reached; reached.install(); import sunk_syncer.policy.drains as d;"
        "print(len(reached.summary(reached.present())) > 2, bool(d.__file__))"
    )
    env = {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "True"]


def test_a_state_is_what_it_says_without_names_and_numbers() -> None:
    reached.begin()
    reached.told("KV_SUNK_c1_placement", b'{"uid":"a","phase":"bound","job":7,"is_overdue":false}')
    reached.told("KV_SUNK_c1_placement", b'{"uid":"b","phase":"bound","job":8,"is_overdue":false}')

    assert reached.present().states == {"placement-on-bus job phase=bound uid"}


def test_seeds_go_to_the_story_that_finds_what_is_new_the_fastest_and_to_all_in_turn() -> None:
    steering = Steering(["dull", "rich"])
    told: list[str] = []
    for turn in range(4 * EVERY):
        told.append(steering.next())
        news = {f"b{turn}"} if told[-1] == "rich" else {"always"}
        steering.note(told[-1], Reached(branches=frozenset(news)), 1.0)

    assert set(told[:2]) == {"dull", "rich"}
    assert told[2:].count("rich") > told[2:].count("dull") > 0
