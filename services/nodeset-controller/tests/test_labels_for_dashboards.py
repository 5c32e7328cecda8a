"""The three labels for dashboards are written, and read by no code of ours."""

import ast
from collections.abc import Iterator
from pathlib import Path

from sunk_kube import wellknown as wk

ROOT = Path(__file__).parents[3]
NAMES = {"LABEL_RUNNING", "LABEL_DRAIN", "LABEL_NOT_RESPONDING"}
TEXTS = {wk.LABEL_RUNNING, wk.LABEL_NOT_RESPONDING}
WRITER = "services/nodeset-controller/src/sunk_nodeset_controller/pods/conditions.py"
DEFINED = "libs/sunk_kube/src/sunk_kube/wellknown.py"


def users() -> Iterator[str]:
    """Yield each file that names one of the labels, once for each time."""
    for path in sorted([*ROOT.glob("services/*/src/**/*.py"), *ROOT.glob("libs/*/src/**/*.py")]):
        for found in ast.walk(ast.parse(path.read_text())):
            names = {getattr(found, "attr", None), getattr(found, "id", None), getattr(found, "value", None)}
            if names & NAMES or (isinstance(found, ast.Constant) and found.value in TEXTS):
                yield path.relative_to(ROOT).as_posix()


def test_no_code_but_their_writer_names_the_labels_for_dashboards() -> None:
    assert set(users()) == {WRITER, DEFINED}


def test_their_writer_writes_them_and_looks_at_no_labels() -> None:
    tree = ast.parse((ROOT / WRITER).read_text())
    reads = [one for one in ast.walk(tree) if isinstance(one, ast.Attribute) and one.attr == "labels"]

    assert not reads
