"""Names are words of Slurm, Kubernetes and NATS, or of the glossary: what it lists as not used is in none.

Modules, packages and classes are made of the words in nouns.toml alone.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("libs/*/src", "services/*/src")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
FIXED = {
    "libs/sunk_events/src/sunk_events/locks.py: asked",  # A field of the lock's state on the bus.
    "libs/sunk_events/src/sunk_events/placements.py: start_told",  # A field of the placement's state there.
    "libs/sunk_slurm/src/sunk_slurm/errors.py: AUTH_NOBODY",  # Slurm's name of its error 6010.
    "services/hook-gateway/src/sunk_hook_gateway/hooks/bodies.py: said",  # A field that prologs send.
}
"""Names with such a word that are on the wire, or that others have chosen."""
_ENDINGS = {
    "s": ("",),
    "es": ("", "e"),
    "ies": ("y",),
    "ed": ("", "e"),
    "ing": ("", "e"),
    "er": ("", "e"),
    "ers": ("", "e"),
    "or": ("", "e"),
    "ors": ("", "e"),
    "ation": ("", "e"),
    "ations": ("", "e"),
}


def not_used() -> set[str]:
    """Return the words in the first column of the glossary's last table."""
    table = (ROOT / "docs/glossary.md").read_text().partition("## Not used")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][2:]
    return {word.strip() for row in rows for word in row.split(",")}


def names(source: str) -> Iterator[str]:
    """Yield each name that *source* gives: to a class, function, parameter, field, attribute or variable."""
    for found in ast.walk(ast.parse(source)):
        match found:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield found.name
            case ast.arg():
                yield found.arg
            case ast.Name(ctx=ast.Store()):
                yield found.id
            case ast.Attribute(ctx=ast.Store()):
                yield found.attr
            case (
                ast.alias(asname=str(name))
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                yield name
            case _:
                pass


def test_names_of_every_kind_are_found() -> None:
    source = """
import a as b
C = 1
class D:
    e: int
    def f(self, g, *h, i=1, **j):
        self.k = [l for l in m]
        with n as o, (p := q): r = s
        try: t()
        except U as v: w(x=y)
        match z:
            case [aa, *bb] | {"cc": dd, **ee}: lambda ff: gg
"""
    expected = "b C D e f self g h i j k l o p r v aa bb dd ee ff"
    assert set(names(source)) == set(expected.split())


def test_no_name_has_a_word_that_the_glossary_lists_as_not_used() -> None:
    words = not_used()
    assert {"voice", "desk", "shelf"} <= words
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in CODE
        for path in sorted(path for root in ROOT.glob(folder) for path in root.rglob("*.py"))
        for name in (path.stem, *names(path.read_text()))
        if words & {word.lower() for word in _WORD.findall(name)}
    }
    assert sorted(found - FIXED) == [], "docs/glossary.md says which words to use instead"
    assert sorted(FIXED - found) == [], "no such name is there any more"


def words_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the words in the names of a module, its packages and its classes, each with the name."""
    named = [*path.relative_to(ROOT).with_suffix("").parts[3:]]
    named += [
        found.name for found in ast.walk(ast.parse(path.read_text())) if isinstance(found, ast.ClassDef)
    ]
    for name in named:
        for word in _WORD.findall(name):
            yield word.lower(), name


def stems(word: str) -> Iterator[str]:
    """Yield *word* and what it may be a form of: ``names`` is one of *name*."""
    yield word
    for ending, begins in _ENDINGS.items():
        if word.endswith(ending) and len(word) > len(ending) + 1:
            bare = word.removesuffix(ending)
            yield from (bare + begin for begin in begins)
            if bare[-1] == bare[-2]:
                yield bare[:-1]


def test_modules_packages_and_classes_are_named_by_words_of_the_list() -> None:
    lists = tomllib.loads((ROOT / "tests/contract/nouns.toml").read_text())
    known = [word for words in lists.values() for word in words.split()]
    assert len(known) == len(set(known)), "a word stands twice"
    allowed, used, found = frozenset(known), set[str](), list[str]()
    for path in (
        path for folder in CODE for root in ROOT.glob(folder) for path in sorted(root.rglob("*.py"))
    ):
        for word, name in words_of(path):
            stem = next((one for one in stems(word) if one in allowed), None)
            if stem is None:
                found.append(f"{path.relative_to(ROOT)}: {word} in {name}")
            else:
                used.add(stem)
    assert found == [], (
        "a word that is none of Slurm's, Kubernetes' or NATS': is there one that readers know?"
    )
    assert allowed - used == set(), "no name has these words any more"
