"""The site (`./task docs`) has every page of the repository, and builds without a warning."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_on_the_site_and_in_its_search(site: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    pages = [
        Path(name).with_suffix(".html") for name in listed.stdout.splitlines() if (ROOT / name).is_file()
    ]
    pages = [page.with_name("index.html") if page.stem == "README" else page for page in pages]
    searched = {
        entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
    }

    assert [str(page) for page in pages if not (site / page).is_file()] == []
    assert [str(page) for page in pages if str(page) not in searched] == []


def test_a_file_that_a_page_links_is_there_and_a_list_within_a_list_stays_one(site: Path) -> None:
    assert (site / "docs/openapi.json").read_bytes() == (ROOT / "docs/openapi.json").read_bytes()
    inner = (site / "docs/evidence.html").read_text().split("<li>Jobs over two nodes", 1)[0]
    assert "<ul>\n<li>" in inner.split("Both charts, installed by Helm", 1)[1].split("</li>", 1)[0]


def test_pictures_are_shown_at_the_end_of_their_page_if_they_are_there(tmp_path: Path) -> None:
    hook = runpy.run_path(str(ROOT / "tools/site_pages.py"))
    shown = hook["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="docs/page.md"))
    without = shown("# The live page\n", page=page)
    (tmp_path / "build/pictures").mkdir(parents=True)
    (tmp_path / "build/pictures/page-nodes.png").touch()
    shown.__globals__["ROOT"] = tmp_path

    assert without == "# The live page\n"
    assert "![page-nodes](../build/pictures/page-nodes.png)" in shown("# The live page\n", page=page)
