"""Parts of a Markdown page, for tests that apply what the page says."""

import re
from collections.abc import Iterator


def fenced(page: str, language: str) -> list[str]:
    """Return the text of each fenced block of *language* in *page*."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def table_rows(page: str, first: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row below a heading row whose first cell is *first*.

    Of a cell that begins with code only the code is returned.
    """
    is_in = False
    for line in page.splitlines():
        if not line.startswith("| "):
            is_in = False
        elif line.startswith(f"| {first}"):
            is_in = True
        elif is_in and not line.startswith("| -"):
            yield tuple(
                _plain(cell) for cell in line.strip().removeprefix("| ").removesuffix(" |").split(" | ")
            )


def _plain(cell: str) -> str:
    code = re.match(r"`([^`]*)`", cell)
    return code[1] if code else cell
