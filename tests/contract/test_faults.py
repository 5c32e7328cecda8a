"""tests/faults.md names tests and mutants that exist."""

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = ROOT / "tests/faults.md"
TEST: Final = re.compile(r"^- `([^`:]+)::(test_\w+)`", re.MULTILINE)
MUTANT: Final = re.compile(r"^- put back: `(\w+)`$", re.MULTILINE)


def functions_of(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_test_that_the_table_names_exists() -> None:
    named = TEST.findall(TABLE.read_text())
    there = {path: functions_of(ROOT / path) for path, _ in named if (ROOT / path).is_file()}

    assert named
    assert [f"{path}::{name}" for path, name in named if name not in there.get(path, ())] == []


def test_each_mutant_that_the_table_names_exists() -> None:
    there = {patch.stem for patch in (ROOT / "tests/simulation/mutants").glob("*.patch")}

    assert set(MUTANT.findall(TABLE.read_text())) - there == set()


def test_each_fault_has_a_test() -> None:
    faults = TABLE.read_text().split("\n## ")[1:]

    assert [fault.splitlines()[0] for fault in faults if not TEST.search(fault)] == []
