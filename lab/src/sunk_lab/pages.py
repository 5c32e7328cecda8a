"""Parts of a Markdown page, for tests that apply what the page says."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace


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


@dataclass(frozen=True)
class Step:
    """Commands of a page, and what the page shows below them."""

    commands: str
    shown: str = ""

    def is_shown(self, printed: str) -> bool:
        """Whether *printed* is what the page shows; ``...`` there stands for any text of one line."""
        pattern = r"\n".join(
            r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*") for word in line.split())
            for line in self.shown.strip().splitlines()
        )
        return (
            re.fullmatch(pattern, "\n".join(line.strip() for line in printed.strip().splitlines()))
            is not None
        )


def steps(page: str) -> list[Step]:
    """Return each fenced block of ``sh`` in *page*, with the block of ``text`` that follows it.

    Raises:
        ValueError: A block of ``text`` follows no commands.
    """
    found: list[Step] = []
    for language, text in re.findall(r"^```(sh|text)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if language == "sh":
            found.append(Step(text))
        elif not found or found[-1].shown:
            raise ValueError(f"no commands print this: {text}")
        else:
            found[-1] = replace(found[-1], shown=text)
    return found
