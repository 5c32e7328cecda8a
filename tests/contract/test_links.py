"""Every relative link of every page leads to a file that is there, and every anchor to a heading."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_ELSEWHERE: Final = re.compile(r"[a-z]+:")


@cache
def pages() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).exists())


def without_code(page: str) -> str:
    page = re.sub(r"(?ms)^([ ]*)```.*?^\1```", "", page)
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("]", ""), page)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of *page*, made as GitHub makes them."""
    found: dict[str, int] = {}
    text = re.sub(r"(?ms)^([ ]*)```.*?^\1```", "", page.read_text())
    names: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(f"{slug}-{count}" if count else slug)
    return frozenset(names)


def broken(page: Path) -> list[str]:
    """Return the links of *page* that lead nowhere."""
    found: list[str] = []
    for link in _LINK.findall(without_code(page.read_text())):
        if _ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            found.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            found.append(f"{link}: no such heading")
    return found


@pytest.mark.parametrize("name", pages())
def test_each_link_of_a_page_leads_somewhere(name: str) -> None:
    assert broken(ROOT / name) == []


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n\n[a](none.md) [b](#one-two) [c](#three) [d](https://e.example) `[e](f.md)`\n"
    )

    assert broken(page) == ["none.md: no such file", "#three: no such heading"]
