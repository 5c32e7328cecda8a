"""A hook of MkDocs: the site's pages are all pages of the repository, each at its own path.

MkDocs looks for pages in one folder. Ours are next to what they describe, and their links work in a checkout
too. Python-Markdown wants four spaces for what is inside a list; mdformat writes each page so.
"""

import os.path
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, cast

import mdformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ELSEWHERE: Final = re.compile(r"[a-z]+:|#")
PICTURES: Final = Path("build/pictures")
"""Where the `pictures` tasks put what they draw."""
_SHOWN: Final = {"docs/metrics.md": "*.svg", "docs/page.md": "page-*.png"}
"""Which pictures the site adds to the end of a page, if they are there; the repository holds none of them."""
_FENCED: Final = re.compile(r"(?ms)^[ ]*```.*?^[ ]*```[ ]*$")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder where the navigation names `folder/*`."""
    config["nav"] = _filled(cast("object", config["nav"]), _pages())
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Return the theme's files and ours."""
    pages = _pages()
    found = Files([file for file in files if file.src_dir != config.docs_dir])
    for path in (*pages, *sorted(_linked(pages))):
        found.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    for picture in (picture for page in _SHOWN for picture in _pictures(page)):
        found.append(File(str(picture), str(ROOT), config.site_dir, config.use_directory_urls))
    return found


def on_page_markdown(markdown: str, /, *, page: Page, **_: object) -> str:
    """Return the page as Python-Markdown reads it; a link to a folder leads to its README, or is none."""
    path = page.file.src_uri
    shown = [
        f"![{picture.stem}]({os.path.relpath(picture, PurePosixPath(path).parent)})"
        for picture in _pictures(path)
    ]
    return mdformat.text(  # pyright: ignore[reportUnknownMemberType] - a parameter that we do not use has no type
        "\n\n".join([_without_folders(markdown, path), *(["## Pictures"] if shown else []), *shown]),
        extensions={"gfm", "tables", "mkdocs"},
        options={"no_mkdocs_math": True},
    )


def _pictures(page: str) -> list[Path]:
    """Return the pictures of *page* that are there, as paths in the repository."""
    wanted = _SHOWN.get(page)
    return [found.relative_to(ROOT) for found in sorted((ROOT / PICTURES).glob(wanted))] if wanted else []


def _pages() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def _filled(entry: object, pages: tuple[str, ...]) -> object:
    match entry:
        case dict():
            return {title: _filled(below, pages) for title, below in cast("dict[str, object]", entry).items()}
        case list():
            entries = cast("list[object]", entry)
            return [found for below in entries for found in _listed(below, pages, entries)]
        case _:
            return entry


def _listed(entry: object, pages: tuple[str, ...], beside: list[object]) -> Iterator[object]:
    if isinstance(entry, str) and entry.endswith("/*"):
        yield from (
            page for page in pages if f"{PurePosixPath(page).parent}/*" == entry and page not in beside
        )
    else:
        yield _filled(entry, pages)


def _linked(pages: tuple[str, ...]) -> set[str]:
    """Return the files, no pages, that the pages link."""
    found: set[str] = set()
    for page in pages:
        for link in _LINK.finditer(_FENCED.sub("", (ROOT / page).read_text())):
            path = _target(link[3], page)
            if path and path not in pages and (ROOT / path).is_file():
                found.add(path)
    return found


def _target(link: str, page: str) -> str:
    """Return the path in the repository to which a link of a page leads; empty: elsewhere."""
    if _ELSEWHERE.match(link):
        return ""
    return os.path.normpath(PurePosixPath(page).parent / link.partition("#")[0])


def _site_link(page: str, link: re.Match[str]) -> str:
    path = _target(link[3], page)
    if not path or not (ROOT / path).is_dir():
        return link[0]
    if (ROOT / path / "README.md").is_file():
        return f"[{link[2]}]({link[3].rstrip('/')}/README.md)"
    return link[2]


def _without_folders(markdown: str, page: str) -> str:
    parts: list[str] = []
    end = 0
    for code in _FENCED.finditer(markdown):
        parts += [_LINK.sub(partial(_site_link, page), markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join((*parts, _LINK.sub(partial(_site_link, page), markdown[end:])))
