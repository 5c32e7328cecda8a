"""What a run has reached: branches of the rooms that decide, and distinct states of what servers hold.

The rooms are those that import-linter keeps from I/O (pyproject.toml). Their modules are compiled with a mark
at each branch, which costs nothing anywhere else; a state is what a record says of itself without names,
numbers and times. What must stay true: nothing here changes what is decided, or takes time.
"""

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import msgspec

_CONTRACT: Final = "Rooms of decisions do no I/O"
_MARK: Final = "__reached__"
_SHOWN: Final = 12
"""So many branches of a module are named that were not reached."""

_WORDS: Final = frozenset({"lock", "phase", "state"})
"""Fields of states on the bus that have one of a few words."""

branches: Final[set[str]] = set()
"""Those that were taken, such as ``sunk_syncer.policy.drains:87 if no``."""
states: Final[set[str]] = set()
"""Those that were seen, such as ``slurm-job single RUNNING Prolog``."""
_known: Final[dict[str, None]] = {}
"""All branches of the modules that were imported."""


class Reached(msgspec.Struct, frozen=True):
    """What one seed has reached."""

    branches: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()


def state(kind: str, *parts: object) -> None:
    """Take note of a state that something is in."""
    states.add(" ".join((kind, *map(str, parts))))


def told(bucket: str, data: bytes) -> None:
    """Take note of a state on the bus: which of its fields say something, and its words."""
    if data.startswith(b"{"):
        try:
            found: dict[str, object] = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return
        said = [f"{name}={value}" if name in _WORDS else name for name, value in found.items() if value]
        state(f"{bucket.split('_', 3)[-1]}-on-bus", *sorted(said))


def begin() -> None:
    """Forget what importing has reached, or an earlier seed."""
    branches.clear()
    states.clear()


def present() -> Reached:
    """Return what was reached since `begin`."""
    return Reached(frozenset(branches), frozenset(states))


def summary(found: Reached, *, shown: int = _SHOWN) -> list[str]:
    """Return lines that say what was reached of what there is, and what was not, by module."""
    kinds = Counter(one.partition(" ")[0] for one in found.states)
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    lines = [f"{len(found.states)} distinct states: {counts}"]
    reached = found.branches & _known.keys()
    lines.append(f"{len(reached)} of {len(_known)} branches of decisions")
    for module in sorted({_module(one) for one in _known}):
        ours = [one for one in _known if _module(one) == module]
        left = sorted((one.partition(":")[2] for one in ours if one not in reached), key=_line)
        more = f" and {len(left) - shown} more" if len(left) > shown else ""
        said = f"; not: {', '.join(left[:shown])}{more}" if left else ""
        lines.append(f"  {module}: {len(ours) - len(left)} of {len(ours)}{said}")
    return lines


def install() -> None:
    """Mark the branches of rooms that decide, which must not be imported yet."""
    rooms = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    contracts = rooms["tool"]["importlinter"]["contracts"]
    (sources,) = (one["source_modules"] for one in contracts if one["name"] == _CONTRACT)
    sys.meta_path.insert(0, finder(sources))


def finder(rooms: Sequence[str]) -> MetaPathFinder:
    """Return what finds the modules of *rooms*, and has their branches marked."""
    return _Finder(rooms)


class _Finder(MetaPathFinder):
    """Finds modules of rooms as Python does, and has them compiled here."""

    def __init__(self, rooms: Sequence[str]) -> None:
        self._rooms: Final = tuple(rooms)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(fullname == room or fullname.startswith(f"{room}.") for room in self._rooms):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    """Compiles a module with its marks; what is cached has none."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = _Marker(fullname).visit(ast.parse(self.get_data(path)))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_MARK] = branches.add
        super().exec_module(module)


class _Marker(ast.NodeTransformer):
    """Puts a mark at each branch: functions, both ways of an ``if``, cases, loops, handlers."""

    def __init__(self, module: str) -> None:
        self._module: Final = module

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        head = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body.insert(head, self._statement(node, f"def {node.name}"))
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "if yes"))
        node.orelse.insert(0, self._statement(node, "if no"))
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.body = self._value(node, "if yes", node.body)
        node.orelse = self._value(node, "if no", node.orelse)
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        self.generic_visit(node)
        for case in node.cases:
            if not _is_impossible(case.body):
                case.body.insert(0, self._statement(case.pattern, "case"))
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "for"))
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "while"))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "except"))
        return node

    def _mark(self, where: ast.AST, what: str) -> ast.Call:
        name = f"{self._module}:{where.lineno} {what}"  # type: ignore[attr-defined]
        _known[name] = None
        return ast.Call(ast.Name(_MARK, ast.Load()), [ast.Constant(name)], [])

    def _statement(self, where: ast.AST, what: str) -> ast.stmt:
        return ast.copy_location(ast.Expr(self._mark(where, what)), where)

    def _value(self, where: ast.AST, what: str, value: ast.expr) -> ast.expr:
        """Return an expression that is *value*, and leaves a mark."""
        return ast.copy_location(ast.BoolOp(ast.Or(), [self._mark(where, what), value]), where)


def _is_impossible(body: Iterable[ast.stmt]) -> bool:
    """Whether it is what no case is left for."""
    calls = (one.value.func for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call))
    return any(isinstance(call, ast.Name) and call.id == "assert_never" for call in calls)


def _module(branch: str) -> str:
    return branch.partition(":")[0]


def _line(branch: str) -> tuple[int, str]:
    number, _, what = branch.partition(" ")
    return int(number), what
