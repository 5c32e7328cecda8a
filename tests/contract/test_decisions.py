"""The list of decisions in docs/architecture.md has each ADR, under its own number and title."""

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"


def test_every_decision_is_listed_once_by_its_number_and_title() -> None:
    titles = {path: path.read_text().partition("\n")[0].removeprefix("# ") for path in DOCS.glob("adr/*.md")}
    numbers = [path.name[:4] for path in titles]
    listed = re.findall(r"^- \[(.+)\]\(adr/(.+)\)$", (DOCS / "architecture.md").read_text(), re.MULTILINE)

    assert listed == sorted((title, path.name) for path, title in titles.items())
    assert len(set(numbers)) == len(numbers)
    assert all(title.startswith(f"{path.name[:4]}. ") for path, title in titles.items())
