"""Pages, and the texts of charts and programs, are in plain English.

No word that the glossary refuses, no long sentence, no nameless actor, no sentence that is turned round, and
pages that textstat finds as easy to read as texts for pupils.
"""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, cast

import pytest
import textstat
import yaml

from sunk_lab.pages import table_rows

ROOT: Final = Path(__file__).parents[2]
WORDS_MAX: Final = 40
GRADE_MAX: Final = 10.0
"""Automated readability index: the year at school, in the United States, for which a text is written."""
_FEW_WORDS: Final = 100
"""The index says nothing of less."""
NOT_CHECKED: Final = ("tests/contract/pod_scheduler_sentences.md",)
"""Not for users."""
_LIST_ITEM: Final = re.compile(r"\s*([-*]|\d+\.) ")
_BARE_WHO: Final = re.compile(r"(?:^|[.;:] )(?:Who|Whose|Whom|who|whose|whom) [^?]*$")
_INVERTED: Final = re.compile(
    r"(?:Nor|Neither (?:do|does|is|are|can)|So (?:do|does|is|are|must|can)|Nothing (?:that|of)) "
    r"|Of (?:several|many|all|both|the|these|two) [^,]*,"
)
"""A sentence that begins so has its verb before its subject, or its subject at the end."""
_END: Final = re.compile(r"(?<=[.!?])\s+|:\s*$")


@cache
def replacements() -> dict[str, str]:
    """Return what to write by each word that is not used, from the glossary."""
    glossary = (ROOT / "docs/glossary.md").read_text()
    section = glossary.partition("## Not used in pages")[2]
    return {word.strip(): use for words, use in table_rows(section, "not used") for word in words.split(",")}


def paragraphs(page: str) -> Iterator[str]:
    """Yield the prose of a page: paragraphs, list items and cells, without code, links and emphasis."""
    page = page.partition("## Not used")[0]
    page = re.sub(r"(?ms)^([ ]*)```.*?^\1```", "", page)
    page = re.sub(r"(?s)<!--.*?-->", "", page)
    found: list[str] = []
    for line in [*page.splitlines(), ""]:
        is_code, is_table = line.startswith("    ") and not found, line.lstrip().startswith("|")
        if not line.strip() or line.startswith("#") or is_code or is_table or _LIST_ITEM.match(line):
            if found:
                yield _prose(" ".join(found))
            found = []
        if is_table:
            yield from (_prose(cell) for cell in line.split(" | "))
        elif line.strip() and not line.startswith("#") and not is_code:
            found.append(_LIST_ITEM.sub("", line, count=1).strip())


def _prose(text: str) -> str:
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("*", "").replace("|", "").strip()


def sentences(paragraph: str) -> list[str]:
    return [one for one in _END.split(paragraph) if one]


def findings(page: str) -> list[str]:
    """Return what a reader would stumble over, each with what to write."""
    found: list[str] = []
    for paragraph in paragraphs(page):
        for word, use in replacements().items():
            if re.search(rf"\b{re.escape(word)}\b", paragraph, re.IGNORECASE):
                found.append(f"{word!r}: write {use}: {paragraph[:100]}")
        for sentence in sentences(paragraph):
            if (count := len(sentence.split())) > WORDS_MAX:
                found.append(f"{count} words, at most {WORDS_MAX}: {sentence[:100]}")
            if _BARE_WHO.search(sentence):
                found.append(f"'who' without a noun: write 'a user who', 'a service that': {sentence[:100]}")
            if _INVERTED.match(sentence):
                found.append(f"turned round: begin with the subject: {sentence[:100]}")
    return found


@cache
def pages() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(name for name in listed.stdout.splitlines() if name not in NOT_CHECKED)


def described(text: object) -> Iterator[str]:
    """Yield what a definition or an alert says to people: every description and summary below *text*."""
    match text:
        case dict():
            for key, value in cast("dict[str, object]", text).items():
                if key in {"description", "summary"} and isinstance(value, str):
                    yield value
                else:
                    yield from described(value)
        case list():
            for value in cast("list[object]", text):
                yield from described(value)
        case _:
            return


def chart_texts(path: Path) -> list[str]:
    """Return what users read of a chart's file: its comments, its descriptions, or all of NOTES."""
    if path.name == "NOTES.txt":
        return [re.sub(r"(?s)\{\{.*?\}\}", "", path.read_text())]
    if path.parent.name in {"files", "crds"}:
        return list(described(yaml.safe_load(path.read_text())))
    return re.findall(r"(?m)^\s*# (.*)", path.read_text())


CHARTS: Final = sorted(
    path
    for pattern in (
        "values.yaml",
        "examples/*.yaml",
        "templates/NOTES.txt",
        "files/alerts.yaml",
        "files/crds/*",
    )
    for path in (ROOT / "helm").glob(f"*/{pattern}")
)


PROGRAMS: Final = sorted(
    path
    for pattern in ("libs/*/src/**/*.py", "services/*/src/**/*.py", "helm/*/files/**/*.py")
    for path in ROOT.glob(pattern)
    if not {"testing", "testing.py"} & set(path.parts)
)
SCRIPTS: Final = sorted(
    path
    for pattern in ("templates/**/*.tpl", "templates/**/*-policy.yaml", "files/*-policy.yaml", "files/**/*")
    for path in (ROOT / "helm").glob(f"*/{pattern}")
    if path.is_file() and path.suffix in {".tpl", ".yaml", ".sh", ""} and path.name != "alerts.yaml"
)
_COMMENT: Final = re.compile(r"(?s)\{\{-? ?/\*.*?\*/ ?-?\}\}|(?<!\S)# [^\n]*")
_QUOTED: Final = re.compile(r""" message: >-\n((?: {6}.*\n)+)|"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'""")


def strings(source: str) -> Iterator[str]:
    """Yield the strings of a Python module without docstrings; N stands for each value of an f-string."""
    tree = ast.parse(source)
    others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):  # An f-string comes before its parts.
        if isinstance(node, ast.JoinedStr):
            others |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            yield node.value


def program_texts(path: Path) -> list[str]:
    """Return what users may read of a program, a script or a template: strings with a space in them."""
    source = path.read_text()
    if path.suffix == ".py":
        found = strings(source)
    else:
        found = ("".join(groups) for groups in _QUOTED.findall(_COMMENT.sub("", source)))
    return [text for text in found if " " in text.strip()]


@pytest.mark.parametrize("path", [*PROGRAMS, *SCRIPTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_program_prints_is_in_plain_words_and_short_sentences(path: Path) -> None:
    assert [found for text in program_texts(path) for found in findings(text)] == []


def test_strings_of_a_program_are_found_and_docstrings_are_not(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text('"""Somebody reads this."""\n\nTOLD = f"{1} is not told to anybody"\nWORD = "told"\n')

    assert program_texts(program) == ["N is not told to anybody"]


def test_messages_of_scripts_are_found_and_comments_are_not(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text('# Somebody reads "it\'s here".\necho "nobody\'s home" \'is told\'  # "for nobody"\n')

    assert program_texts(script) == ["nobody's home", "is told"]


@pytest.mark.parametrize("path", CHARTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_chart_says_is_in_plain_words_and_short_sentences(path: Path) -> None:
    texts = chart_texts(path)

    assert texts
    assert [found for text in texts for found in findings(text)] == []


@pytest.mark.parametrize("name", pages())
def test_a_page_is_in_plain_words_and_short_sentences(name: str) -> None:
    assert findings((ROOT / name).read_text()) == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("Somebody drains the node.", "'somebody': write the actor's name"),
        ("Nodes are drained; who did it is not known.", "'who' without a noun"),
        ("- one\n- " + "word " * 41, "41 words, at most 40"),
        ("| a | b |\n| --- | --- |\n| x | taints that are borne |", "'borne': write tolerates"),
        ("It has no port. Nor can it get one.", "turned round: begin with the subject"),
        ("Of several replicas, one leads.", "turned round"),
    ],
)
def test_old_words_and_long_sentences_are_found_with_what_to_write(page: str, said: str) -> None:
    (found,) = findings(page)

    assert found.startswith(said)


def test_code_headings_and_plain_sentences_are_let_through() -> None:
    page = "# Who may do what\n\nA user who drains `nobody` writes:\n\n    somebody\n\n```sh\nwhoever\n```\n"

    assert findings(page) == []


def grade(page: str) -> float | None:
    """Return the readability index of a page's prose; None if it has little of it."""
    text = " ".join(f"{one.rstrip('.')}." for one in paragraphs(page) if len(one.split()) > 5)
    if len(text.split()) < _FEW_WORDS:
        return None
    index = cast("Callable[[str], float]", vars(textstat)["automated_readability_index"])
    return index(text)


@pytest.mark.parametrize("name", pages())
def test_ten_years_of_school_are_enough_to_read_a_page(name: str) -> None:
    found = grade((ROOT / name).read_text())

    assert found is None or found <= GRADE_MAX


def test_long_words_in_long_sentences_are_found_hard_to_read() -> None:
    words = "administrators notwithstanding infrastructural considerations unquestionably misunderstand "
    found = grade(f"{words * 3}.\n\n" * 10)

    assert found is not None
    assert found > GRADE_MAX
