"""A run that fails is made small; what is kept of it is a test; seeds that are done are not run again."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from sunk_simulation import runs, shrink
from sunk_simulation.runs import Options, Outcome
from sunk_simulation.simulation import Simulation

ITEMS = tuple(f"fault-{number}" for number in range(1, 41))


def run(options: Options) -> Outcome:
    """Break where two certain faults meet."""
    items = tuple(one for one in ITEMS if options.only is None or one in options.only)
    is_broken = {"fault-7", "fault-31"} <= set(items)
    return Outcome(seed=1, items=items, said="it broke" * is_broken, broke="a check" * is_broken)


def test_only_what_it_takes_is_left() -> None:
    options, outcome = shrink.shrink(1, Options(1.0), run(Options(1.0)), run=run)

    assert options.only == ("fault-7", "fault-31")
    assert outcome.said


def test_a_case_that_is_saved_is_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink, "FOUND", tmp_path / "found")
    outcome = Outcome(seed=1, said='it "broke"\nbadly')

    path = shrink.save(1, Options(0.5, only=("fault-7",)), outcome, "abc")

    assert path.name == "test_proof_1.py"
    compile(path.read_text(), path, "exec")
    assert 'holds(Case(story="proof", seed=1, hours=0.5, only=("fault-7",)))' in path.read_text()


def test_seeds_that_are_done_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def outcomes(cases: Iterable[tuple[int, Options]], **_more: int) -> list[Outcome]:
        seeds = [seed for seed, _ in cases]
        ran.extend(seeds)
        return [Outcome(seed=seed, said="broke" if seed == 2 else "") for seed in seeds]

    monkeypatch.setattr(runs, "outcomes", outcomes)
    monkeypatch.setattr(runs, "freeze", lambda: None)
    done = tmp_path / "done.jsonl"

    assert runs.run_all(range(1, 3), Options(1.0), done=done) == 1
    assert runs.run_all(range(1, 4), Options(1.0), done=done) == 0
    assert runs.run_all(range(1, 2), Options(2.0), done=done) == 0

    assert ran == [1, 2, 3, 1]


def test_no_seed_is_begun_when_the_minutes_are_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "freeze", lambda: None)

    assert runs.run_all(range(1, 1000), Options(1.0), minutes=0) == 0

    assert "0 seeds of 1 h, 0 failed" in capsys.readouterr().out


def test_an_item_that_is_left_out_changes_no_other() -> None:
    with Simulation(7) as sim:
        all_lots = [lots.random() for _ in range(3) if (lots := sim.item("fault"))]
    with Simulation(7, only=("fault-1", "fault-3")) as sim:
        lots = [sim.item("fault") for _ in range(3)]
        names = sim.items

    assert [one.random() if one else None for one in lots] == [all_lots[0], None, all_lots[2]]
    assert names == ["fault-1", "fault-3"]
