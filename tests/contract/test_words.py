"""Names are words of Slurm, Kubernetes and NATS, or of the glossary: what it lists as not used is in none."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("libs/*/src", "services/*/src")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def not_used() -> set[str]:
    """Return the words in the first column of the glossary's last table."""
    table = (ROOT / "docs/glossary.md").read_text().partition("## Not used")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][2:]
    return {word.strip() for row in rows for word in row.split(",")}


def names(path: Path) -> Iterator[str]:
    """Yield the name of a module, and those of its classes and functions."""
    yield path.stem
    for found in ast.walk(ast.parse(path.read_text())):
        if isinstance(found, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield found.name


def test_no_name_has_a_word_that_the_glossary_lists_as_not_used() -> None:
    words = not_used()
    assert {"voice", "desk", "shelf"} <= words
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in CODE
        for path in sorted(path for root in ROOT.glob(folder) for path in root.rglob("*.py"))
        for name in names(path)
        if words & {word.lower() for word in _WORD.findall(name)}
    ]
    assert found == []
