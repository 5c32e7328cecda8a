"""A whole run fails if a test that a table names has not passed in it."""

import subprocess
import sys
from pathlib import Path

import pytest

TABLE = """
- `test_some.py::test_good`
- `test_some.py::test_of_a_class` (a real server)
- `test_some.py::test_that_is_skipped`
- `test_some.py::test_that_is_gone` (a real server, 200 Pods nightly)
- `test_some.py::test_of_the_night` (a real server, nightly)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("value", ["a::b", "[c]"])
def test_good(value): ...

class TestClass:
    def test_of_a_class(self): ...

@pytest.mark.skip
def test_that_is_skipped(): ...

@pytest.mark.long
def test_of_the_night(): ...
"""
SETTINGS = """
[pytest]
testpaths = .
addopts = -m "not long" -p sunk_lab.shown_by
markers = long
shown_by = table.md
"""


def run(folder: Path, *words: str, table: str = TABLE) -> tuple[int, str]:
    """Return with what a run of pytest with *words* ends, and what it says."""
    (folder / "test_some.py").write_text(TESTS)
    (folder / "table.md").write_text(table)
    (folder / "pytest.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_whole_run_names_what_did_not_pass(tmp_path: Path, processes: str) -> None:
    status, text = run(tmp_path, "-n", processes)

    assert status == pytest.ExitCode.TESTS_FAILED
    told = text.partition("2 tests that table.md name have not passed")[2].splitlines()[1:3]
    assert told == ["test_some.py::test_that_is_skipped", "test_some.py::test_that_is_gone"]


def test_a_whole_run_in_which_all_of_them_pass_is_good(tmp_path: Path) -> None:
    assert run(tmp_path, table="\n".join(TABLE.splitlines()[:3]))[0] == pytest.ExitCode.OK


@pytest.mark.parametrize("words", [("test_some.py",), ("-k", "good"), ("-m", "long")], ids=" ".join)
def test_a_run_of_some_tests_is_not_asked_for_all(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert run(tmp_path, *words)[0] == pytest.ExitCode.OK
