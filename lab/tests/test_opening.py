"""What the demo shows while Kubernetes compiles: in that order, on real servers, with nothing left behind."""

import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.build import progress
from sunk_lab.stack.stack import Stack
from sunk_lab.story import demo as demos
from sunk_lab.story.opening import STEPS, WAITS, FirstSlurm, meanwhile, tell_opening
from sunk_lab.story.telling import Narrator, Told, told_of

HANGS_S = 60.0
"""A test that fails would wait for ever."""


class ScriptedStack:
    """A stack that only notes what is asked of it."""

    logs = Path("/logs")

    def __init__(self, said: list[str], *, is_built: bool) -> None:
        self._said = said
        self._is_built = is_built
        self.is_told = threading.Event()

    def is_built(self) -> bool:
        return self._is_built

    def prepare(self) -> None:
        assert self.is_told.wait(HANGS_S), "nothing was told while Kubernetes compiled"
        self._said.append("compiled")

    def up(self) -> None:
        self._said.append("up")

    def down(self) -> None:
        self._said.append("down")


class ScriptedFirst:
    """An opening that is never begun."""

    def down(self) -> None:
        return


FIRST = cast("FirstSlurm", ScriptedFirst())


def told(name: str) -> Told:
    return Told(name, 0.0, ())


@pytest.mark.parametrize(
    ("is_built", "order"),
    [
        pytest.param(False, ["opening", "compiled", "up", "story", "down"], id="an empty cache"),
        pytest.param(True, ["up", "story", "down"], id="all is built"),
    ],
)
def test_what_needs_no_kubernetes_is_told_before_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch, *, is_built: bool, order: list[str]
) -> None:
    said: list[str] = []
    lines: list[str] = []
    stack = ScriptedStack(said, is_built=is_built)

    def opening(*_: Any) -> list[Told]:  # noqa: ANN401 - what the demo gives it
        said.append("opening")
        stack.is_told.set()
        return [told("job")]

    def story(*_: Any) -> list[Told]:  # noqa: ANN401
        said.append("story")
        return [told("cordon")]

    monkeypatch.setattr(demos, "tell_opening", opening)
    monkeypatch.setattr(demos, "tell", story)

    status = demos.demo(cast("Stack", stack), FIRST, Narrator(lines.append), keep=False)

    assert (status, said) == (0, order)
    assert any(f"All {1 if is_built else 2} steps worked" in line for line in lines)


def test_a_step_of_the_opening_that_does_not_hold_makes_the_demo_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stack = ScriptedStack([], is_built=False)
    stack.is_told.set()
    lines: list[str] = []

    def opening(*_: Any) -> list[Told]:  # noqa: ANN401
        return [Told("job", 0.0, (), "no fact came")]

    monkeypatch.setattr(demos, "tell_opening", opening)
    monkeypatch.setattr(demos, "tell", lambda *_: [told("cordon")])  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]

    status = demos.demo(cast("Stack", stack), FIRST, Narrator(lines.append), keep=False)

    assert status == 1
    assert any("These steps failed: job" in line for line in lines)


def test_a_compilation_that_fails_ends_the_telling_and_names_its_error() -> None:
    failed = threading.Event()

    def prepare() -> None:
        failed.set()
        raise LabError("compiling runc failed, see runc.log")

    def tell(is_in_vain: Any) -> list[Told]:  # noqa: ANN401 - a function
        assert failed.wait(HANGS_S)
        while not is_in_vain():
            pass
        return []

    with pytest.raises(LabError, match=r"see runc\.log"):
        meanwhile(prepare, tell, Narrator(lambda _line: None))


def test_that_the_rest_waits_for_the_compilation_is_said_while_it_does() -> None:
    lines: list[str] = []
    is_said = threading.Event()

    def prepare() -> None:
        assert is_said.wait(HANGS_S), "it was not said"

    def say(line: str) -> None:
        lines.append(line)
        is_said.set()

    assert meanwhile(prepare, lambda _: [told("job")], Narrator(say)) == [told("job")]
    assert lines == [WAITS]


def test_a_step_that_fails_is_told_with_what_was_seen() -> None:
    lines: list[str] = []

    def step() -> list[Any]:
        raise LabError("node1: not within 240 s; seen: []")

    found = told_of("drained", step, Narrator(lines.append))

    assert found.problem == "node1: not within 240 s; seen: []"
    assert lines == ["  ✗ node1: not within 240 s; seen: []"]


@pytest.mark.parametrize(
    ("counts", "total", "said"),
    [
        pytest.param([120], 0, "120 packages", id="how many there are is not known"),
        pytest.param([120], 2900, "120 of 2900 packages", id="one look says nothing of the pace"),
        pytest.param([0, 100], 2900, "100 of 2900 packages, about 14 minutes left", id="two looks"),
        pytest.param(
            [0, 0, 0, 2000, 2200, 2400, 2600],
            2900,
            "2600 of 2900 packages, about 1 minute left",
            id="only the last looks count",
        ),
        pytest.param([500, 500, 500, 500], 2900, "500 of 2900 packages", id="it stands still"),
        pytest.param([0, 1], 2900, "1 of 2900 packages", id="it has hardly begun"),
        pytest.param([2800, 2950], 2900, "2950 of 2900 packages", id="it only links now"),
    ],
)
def test_how_far_a_compilation_is(counts: list[int], total: int, said: str) -> None:
    assert progress(counts, total) == said


@pytest.mark.lab
def test_the_opening_holds_on_real_servers_and_leaves_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("Slurm on this machine needs root")
    config = from_environment()
    lines: list[str] = []
    first = FirstSlurm(config.slurm, tmp_path / "labs/opening", cache=config.cache, report=lines.append)

    found = tell_opening(first, Narrator(lines.append), lambda: False)

    assert [(step.name, step.problem) for step in found] == [(name, "") for name in STEPS]
    assert all(step.timings for step in found)
    text = "\n".join(lines)
    assert "slurm.job." in text  # The facts themselves came by.
    assert "by hand: fan" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.lab
def test_an_opening_in_vain_tells_no_step_and_leaves_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("Slurm on this machine needs root")
    config = from_environment()
    first = FirstSlurm(config.slurm, tmp_path / "labs/opening", cache=config.cache, report=lambda _line: None)

    assert tell_opening(first, Narrator(lambda _line: None), lambda: True) == []
    assert list(tmp_path.iterdir()) == []
