"""Each sentence of the documents about the pod-scheduler has a test, or says that it has none yet."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    for line in Path(__file__).with_name("pod_scheduler_sentences.md").read_text().splitlines()
    if line.startswith("| ") and line != "| what | shown by |"
]
NAMED = re.compile(r"`([\w./-]+\.py)::(\w+)`")


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_each_row_names_tests_that_exist_or_says_not_yet(row: list[str]) -> None:
    what, shown = row
    named = NAMED.findall(shown)

    assert what
    assert named or shown.startswith("not yet: ")
    assert [name for path, name in named if name not in functions_of(path)] == []
