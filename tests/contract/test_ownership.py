"""Each subject, bucket and type has one owner, and is spelled in one place."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

import sunk_events
from sunk_events import subjects, unknown
from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import tag_of
from sunk_events.dead import DeadLetter
from sunk_lab import nats

ROOT = Path(__file__).parents[2]
KINDS: list[type[msgspec.Struct]] = [*EVENTS, *STATES, *REQUESTS, *REPLIES]
FOLDERS = ("libs/*/src", "services/*/src", "lab/src", "bench", "tools")
SOURCES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py"))
BUCKETS = [subjects.bucket("c1", kind).removeprefix("SUNK_c1_") for kind in STATES]
SPELLING = re.compile(
    r"\bsunk\.(?:ev|rpc|dlq|\{\})\."
    r"|\$KV\b|\bKV_(?:SUNK|\{\})|\bSUNK_(?:EV_|DLQ)"
    rf"|\bSUNK_[a-z0-9{{}}-]+_(?:{'|'.join([*BUCKETS, 'lease'])})\b"
    rf"|^_(?:{'|'.join([*BUCKETS, 'lease'])})$"
)
"""``{}`` stands for what an f-string fills in."""
JETSTREAM = re.compile(r"\$JS\.API")
BY_THE_CONSTANT = re.compile(r"from sunk_events\.permissions import .*\b(?:DOMAIN_)?API\b")
MAY_SPELL = {"libs/sunk_events/src/sunk_events/subjects.py", "lab/src/sunk_lab/nats.py"}
"""The lab may import nothing of the product: a test compares its one subject."""
MAY_CALL_JETSTREAM = {
    "libs/sunk_runtime/src/sunk_runtime/pull.py",
    "libs/sunk_events/src/sunk_events/permissions.py",
    "libs/sunk_events/src/sunk_events/view_user.py",
}
CALLS_JETSTREAM_BY_THE_CONSTANT = {
    "libs/sunk_events/src/sunk_events/subscription/session.py",
    "libs/sunk_runtime/src/sunk_runtime/mirroring/keeping.py",
}
"""ADR 0021 says why nats-py's own calls do not do."""


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
    ours = {kind for kind in ours if kind.__module__ != unknown.__name__}  # For types of later versions.

    assert ours == {kind for kind in KINDS if issubclass(kind, base)}


def test_no_two_types_share_a_name() -> None:
    assert len({tag_of(kind) for kind in KINDS}) == len(KINDS)


def text_of(node: ast.AST) -> str | None:
    """Return what *node* comes to as text, ``{}`` where only running it could tell; None if it is no text."""
    match node:
        case ast.Constant(value=str() as value):
            return value
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) or "{}" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = text_of(left), text_of(right)
            return (
                None if parts == (None, None) else "".join("{}" if part is None else part for part in parts)
            )
        case ast.BinOp(left=left, op=ast.Mod()):
            return None if (text := text_of(left)) is None else re.sub(r"%[a-z]", "{}", text)
        case _:
            return None


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts of *tree* with their lines: literals, f-strings, sums; docstrings left out."""
    prose = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # A string that is a statement of its own is a docstring, of whatever it stands under.
    for node in ast.walk(tree):
        if id(node) not in prose and isinstance(node, ast.expr) and (text := text_of(node)):
            yield node.lineno, text


def spelled(text: str, word: re.Pattern[str]) -> list[int]:
    """Return the lines of source *text* with a text that holds *word*."""
    return sorted({line for line, found in strings(ast.parse(text)) if word.search(found)})


def path_in_tree(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=path_in_tree)
def test_nobody_but_subjects_spells_a_subject_a_stream_or_a_bucket(path: Path) -> None:
    if path_in_tree(path) not in MAY_SPELL:
        assert spelled(path.read_text(), SPELLING) == []
    if path_in_tree(path) not in MAY_CALL_JETSTREAM:
        assert spelled(path.read_text(), JETSTREAM) == []


def test_jetstream_is_called_by_hand_only_where_a_decision_says_why() -> None:
    found = {path_in_tree(path) for path in SOURCES if BY_THE_CONSTANT.search(path.read_text())}

    assert found == CALLS_JETSTREAM_BY_THE_CONSTANT


def test_the_walk_goes_over_every_part_of_the_code() -> None:
    parts = {path_in_tree(path).split("/")[0] for path in SOURCES}

    assert parts == {"libs", "services", "lab", "bench", "tools"}


def test_what_the_lab_listens_to_is_what_others_subscribe_to() -> None:
    assert nats.EVERYTHING == subjects.EVERYTHING


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param('x = "sunk.ev.c1.>"', [1], id="a literal"),
        pytest.param('x = f"sunk.ev.{c}.>"', [1], id="an f-string"),
        pytest.param('x = f"sunk.{what}.{c}.>"', [1], id="an f-string that fills in the class"),
        pytest.param('x = "sunk." + "ev." + c', [1], id="a sum"),
        pytest.param('x = "sunk." + what + ".c1"', [1], id="a sum that fills in the class"),
        pytest.param('x = "sunk.%s.c1" % what', [1], id="a percent sign"),
        pytest.param('x = f"SUNK_{c}_slurm_node"', [1], id="a bucket"),
        pytest.param('x = "SUNK_" + c + "_lock"', [1], id="a bucket's sum"),
        pytest.param('x = prefix + "_lease"', [1], id="the end of a bucket"),
        pytest.param('x = f"KV_{bucket}"', [1], id="a bucket's stream"),
        pytest.param('x = f"$KV.{bucket}.>"', [1], id="a bucket's keys"),
        pytest.param('x = f"SUNK_{service}_NATS_URL"', [], id="a variable of the environment"),
        pytest.param('x = "sunk.coreweave.com/lock", "lock", "slurm_node"', [], id="other words"),
        pytest.param('"""On sunk.ev.c1.x."""', [], id="a docstring"),
        pytest.param('class A:\n    b: int\n    """On sunk.ev.c1."""', [], id="a field's docstring"),
    ],
)
def test_the_walk_over_the_sources_sees_what_it_should(text: str, lines: list[int]) -> None:
    assert spelled(text, SPELLING) == lines
