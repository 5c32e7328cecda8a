"""What is generated is fresh, and what was once published only grows."""

import json
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCHEMAS = "libs/sunk_events/schemas"
GOLDEN = "tests/contract/golden"


def git(*arguments: str) -> bytes:
    """Return what git says; nothing where there is no repository or no such commit."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return b""
    return done.stdout if done.returncode == 0 else b""


def bases() -> list[str]:
    """Return what to compare with: the last release, the last commit, and what the last change changed.

    The last is for whoever looks at a change that is already committed, as CI does.
    """
    release = git("describe", "--tags", "--abbrev=0", "--match", "v*").decode().strip()
    change = git("log", "-1", "--format=%h", "--", SCHEMAS, GOLDEN).decode().strip()
    wanted = [release, "HEAD", change and f"{change}^"]
    return [base for base in wanted if base and git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")]


def recorded(base: str, folder: str) -> dict[str, str]:
    """Return the files of *folder* as *base* has them."""
    packed = git("archive", base, folder)
    if not packed:
        return {}
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        found = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read().decode() for name, file in found.items() if file}


def bare(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return *schema* without its prose."""
    if isinstance(schema, dict):
        # What a schema calls "description" is prose, unless it is a field of that name.
        return {
            name: bare(value)
            for name, value in schema.items()  # pyright: ignore[reportUnknownVariableType] - any JSON
            if not (name in {"description", "title"} and isinstance(value, str))
        }
    return sorted(map(str, schema)) if isinstance(schema, list) else schema  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON


def broken(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what a reader or writer of *before* would stumble over in *after*."""
    found: list[str] = []
    for name, old in before["$defs"].items():
        new = after["$defs"].get(name, {"properties": {}})
        if sorted(old.get("required", [])) != sorted(new.get("required", [])):
            found.append(f"{name}: required fields changed")
        for field, schema in old["properties"].items():
            if field not in new["properties"]:
                found.append(f"{name}.{field} is gone")
            elif bare(schema) != bare(new["properties"][field]):
                found.append(f"{name}.{field} changed")
    return found


PAGES = (
    "gen_locks.py",
    "gen_placements.py",
    "gen_stories.py",
    "gen_cli.py",
    "gen_runbooks.py",
    "gen_crds.py",
)
"""What draws and lists for people, from the tables that the code runs on."""


@pytest.mark.parametrize("tool", ["gen_schemas.py", "gen_golden.py", "gen_asyncapi.py", *PAGES])
def test_nothing_generated_is_stale(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / tool, "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("base", bases())
def test_types_that_were_published_only_grow(base: str) -> None:
    problems: list[str] = []
    for name, text in recorded(base, SCHEMAS).items():
        path = ROOT / name
        changes = broken(json.loads(text), json.loads(path.read_bytes())) if path.exists() else ["is gone"]
        problems += [f"{path.stem}: {change}" for change in changes]

    assert problems == []


@pytest.mark.parametrize("base", bases())
def test_golden_files_are_never_edited(base: str) -> None:
    changed = [
        name
        for name, text in recorded(base, GOLDEN).items()
        if not (ROOT / name).exists() or (ROOT / name).read_text() != text
    ]

    assert changed == []


OLD: dict[str, Any] = {
    "$defs": {
        "Node": {"required": ["node"], "properties": {"node": {"type": "string"}, "cpus": {"minimum": 0}}}
    }
}


@pytest.mark.parametrize(
    ("required", "properties", "problems"),
    [
        pytest.param(
            ["node"], {"node": {"type": "string", "description": "x"}, "cpus": {"minimum": 0}}, [], id="prose"
        ),
        pytest.param(
            ["node"], {**OLD["$defs"]["Node"]["properties"], "new": {}}, [], id="a new optional field"
        ),
        pytest.param(
            ["node", "new"],
            {**OLD["$defs"]["Node"]["properties"], "new": {}},
            ["Node: required fields changed"],
            id="a new required field",
        ),
        pytest.param(
            [], OLD["$defs"]["Node"]["properties"], ["Node: required fields changed"], id="no longer required"
        ),
        pytest.param(["node"], {"node": {"type": "string"}}, ["Node.cpus is gone"], id="a field removed"),
        pytest.param(
            ["node"],
            {"node": {"type": "integer"}, "cpus": {"minimum": 0}},
            ["Node.node changed"],
            id="a field retyped",
        ),
    ],
)
def test_the_comparison_sees_what_breaks_a_reader(
    required: list[str], properties: dict[str, Any], problems: list[str]
) -> None:
    assert broken(OLD, {"$defs": {"Node": {"required": required, "properties": properties}}}) == problems
