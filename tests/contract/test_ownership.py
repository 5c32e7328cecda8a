"""Each subject, bucket and type has one owner, and is spelled in one place."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

import sunk_events
from sunk_events import subjects
from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import tag_of
from sunk_events.dead import DeadLetter

ROOT = Path(__file__).parents[2]
KINDS: list[type[msgspec.Struct]] = [*EVENTS, *STATES, *REQUESTS, *REPLIES]
SOURCES = sorted([*ROOT.glob("libs/*/src/**/*.py"), *ROOT.glob("services/*/src/**/*.py")])
SPELLINGS = ("sunk.ev.", "sunk.rpc.", "sunk.dlq.", "$KV.", "SUNK_EV_", "SUNK_DLQ", "KV_SUNK")
MAY_SPELL = {"sunk_events/subjects.py"}
MAY_CALL_JETSTREAM = {"sunk_runtime/jetstream.py", "sunk_runtime/pull.py"}


def overlap(one: str, other: str) -> bool:
    """Whether some subject fits both patterns, which hold ``*`` but no ``>``."""
    first, second = one.split("."), other.split(".")
    return len(first) == len(second) and all(
        a == b or "*" in {a, b} for a, b in zip(first, second, strict=True)
    )


def fact_patterns() -> dict[str, str]:
    return {subjects.facts("c1", kind): owner for kind, owner in EVENTS.items() if kind is not DeadLetter}


def test_no_subject_belongs_to_two_types() -> None:
    patterns = [subjects.facts("c1", kind) for kind in EVENTS if kind is not DeadLetter]
    patterns += [subjects.questions("c1", kind) for kind in REQUESTS]

    assert [pair for pair in combinations(patterns, 2) if overlap(*pair)] == []


def test_the_facts_about_one_kind_of_entity_come_from_one_service() -> None:
    owners: dict[str, set[str]] = {}
    for pattern, owner in fact_patterns().items():
        owners.setdefault(pattern.partition(".*.")[0], set()).add(owner)

    assert {place: names for place, names in owners.items() if len(names) != 1} == {}


def test_no_stream_holds_a_question() -> None:
    streams = [subjects.EVERYTHING, subjects.DEAD_LETTERS]
    streams += [subjects.bucket_keys(subjects.bucket("c1", kind)) for kind in STATES]

    asked = [subjects.questions("c1", kind) for kind in REQUESTS]

    assert [(a, s) for a in asked for s in streams if a.startswith(s.removesuffix(">"))] == []


@pytest.mark.parametrize("kind", EVENTS, ids=tag_of)
def test_a_fact_is_named_after_its_owner(kind: type[Event]) -> None:
    assert tag_of(kind).startswith(f"sunk.{EVENTS[kind].replace('-', '_')}.v1.")


@pytest.mark.parametrize("kind", STATES, ids=tag_of)
def test_a_state_is_named_after_its_only_writer(kind: type[State]) -> None:
    assert tag_of(kind).startswith(f"sunk.{STATES[kind].replace('-', '_')}.v1.")


def descendants(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


@pytest.mark.parametrize("base", [Event, State, Request, Reply])
def test_no_type_of_the_contract_is_missing_in_the_catalog(base: type) -> None:
    for module in pkgutil.iter_modules(sunk_events.__path__):
        importlib.import_module(f"sunk_events.{module.name}")
    ours = {kind for kind in descendants(base) if kind.__module__.startswith("sunk_events.")}

    assert ours == {kind for kind in KINDS if issubclass(kind, base)}


def test_no_two_types_share_a_name() -> None:
    assert len({tag_of(kind) for kind in KINDS}) == len(KINDS)


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the string literals of *tree*, those in f-strings too, docstrings left out."""
    prose = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # A string that is a statement of its own is a docstring, of whatever it stands under.
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node


def spelled(text: str, words: tuple[str, ...]) -> list[int]:
    """Return the lines of source *text* with a literal that holds one of *words*."""
    found = strings(ast.parse(text))
    return [node.lineno for node in found if any(word in str(node.value) for word in words)]


def module_of(path: Path) -> str:
    return str(path).rpartition("/src/")[2]


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_nobody_but_subjects_spells_a_subject_a_stream_or_a_bucket(path: Path) -> None:
    words = () if module_of(path) in MAY_SPELL else SPELLINGS
    if module_of(path) not in MAY_CALL_JETSTREAM:
        words += ("$JS.API",)

    assert spelled(path.read_text(), words) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param('x = "sunk.ev.c1.>"', [1], id="a literal"),
        pytest.param('x = f"sunk.ev.{c}.>"', [1], id="an f-string"),
        pytest.param('"""On sunk.ev.c1.x."""', [], id="a docstring"),
        pytest.param('class A:\n    b: int\n    """On sunk.ev.c1."""', [], id="a field's docstring"),
    ],
)
def test_the_walk_over_the_sources_sees_what_it_should(text: str, lines: list[int]) -> None:
    assert spelled(text, SPELLINGS) == lines
