"""What classes and their fields say of themselves, for schemas and documents."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec


@cache
def field_docstrings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings under the fields of *module*'s classes, by class and field."""
    found: dict[tuple[str, str], str] = {}
    for kind in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        for field, after in zip(kind.body, kind.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    found[kind.name, name] = inspect.cleandoc(text)
                case _:
                    pass
    return found


def reachable(kind: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - any annotation of a field
    """Yield *kind*'s structs, those of its fields included."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from reachable(field.type)
    for argument in get_args(kind):
        yield from reachable(argument)


def describe(definitions: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Give each field in *definitions* the docstring that stands under it, in the class that declares it."""
    for struct in reachable(kind):
        for name, schema in definitions[struct.__name__]["properties"].items():
            for owner in struct.__mro__[: struct.__mro__.index(msgspec.Struct)]:
                if text := field_docstrings(owner.__module__).get((owner.__name__, name)):
                    schema["description"] = " ".join(text.split())
                    break


def meaning(kind: type) -> str:
    """Return the first paragraph of *kind*'s docstring on one line, fit for a cell of a table."""
    text = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
