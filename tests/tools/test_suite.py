"""What CI does with failures: a pytest of its own runs a small suite in each test."""

import runpy
from pathlib import Path
from typing import Any, Final

import pytest

SUITE: Final[dict[str, Any]] = runpy.run_path(str(Path(__file__).parents[2] / "tools/suite.py"))
STEADY = "def test_that_passes(): pass\n"
BROKEN = "def test_that_is_broken(): assert False\n"
UNSTABLE = """
from pathlib import Path

def test_that_passes_the_second_time():
    runs = Path(__file__).with_name("runs")
    runs.touch() if (first := not runs.exists()) else None
    assert not first
"""


def run(folder: Path, tests: str) -> int:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(tests)
    status: int = SUITE["suite"](folder, [])
    return status


def test_a_suite_that_passes_is_run_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STEADY) == 0
    assert "once more" not in capfd.readouterr().out


def test_what_fails_once_passes_and_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STEADY + UNSTABLE) == 0

    out = capfd.readouterr().out
    assert "1 failed, 1 passed" in out
    assert "rerun previous 1 failure" in out
    assert "UNSTABLE, these failed among the others: test_it.py::test_that_passes_the_second_time" in out


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    assert run(tmp_path, UNSTABLE + BROKEN) == 1


def test_many_failures_are_no_accident(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    many = "\n".join(f"def test_{number}(): assert False" for number in range(SUITE["ACCIDENTS"] + 1))

    assert run(tmp_path, many) == 1
    assert "once more" not in capfd.readouterr().out


def test_a_run_that_ended_early_has_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "import nothing_of_that_name\n") != 0
    assert "once more" not in capfd.readouterr().out
