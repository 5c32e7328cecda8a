"""One answer of the API server, to the terminal or to a program; how it went, to an exit status."""

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar
from urllib.parse import quote

import anyio
import msgspec
import typer
import yaml
from rich.console import Console, RenderableType

from sunk_ctl.cluster import Cluster, opened
from sunk_ctl.config import kubeconfig
from sunk_ctl.operations import NAME_CHARS
from sunk_ctl.refusals import NoAnswerError
from sunk_ctl.texts import as_json, shown
from sunk_kube.resources import is_name
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")
Render = Callable[[T, datetime], list[RenderableType]]

WIDE: Final = 240
"""Without a terminal there is no width to keep."""


class Form(StrEnum):
    """How to print the answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Context = Annotated[
    str, typer.Option("--context", help="Context of the kubeconfig; default: the current one")
]
Config = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Kubeconfig; default: KUBECONFIG or ~/.kube/config")
]
Output = Annotated[Form, typer.Option("--output", "-o", help="Print a table for people, or JSON or YAML")]

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace; default: that of the context, or `default`")
]


def name_of(name: str) -> str:
    """Return *name* as a path has it. Raises `NoAnswerError` for what can be no name."""
    if not is_name(name):
        raise NoAnswerError(f"{name[:NAME_CHARS]!r} is not a name of Kubernetes or Slurm", 2)
    return quote(name, safe="")


def answered(context: str, config: Path | None, get: Callable[[Cluster], Awaitable[R]]) -> R:
    """Return what *get* has of the cluster; or say why not, and end with the status of that."""

    async def ask() -> R:
        async with opened(context, kubeconfig(config)) as cluster:
            return await get(cluster)

    try:
        try:
            return anyio.run(ask)
        except BaseExceptionGroup as group:
            raise _first(group) from group
    except NoAnswerError as error:
        end(str(error), error.status)
    except SunkError as error:
        end(str(error), 1)


def show(found: T, output: Form, render: Render[T]) -> None:
    """Print an answer."""
    match output:
        case Form.JSON:
            sys.stdout.write(as_json(found) + "\n")
        case Form.YAML:
            yaml.safe_dump(msgspec.to_builtins(found), sys.stdout, sort_keys=False)
        case Form.TABLE:
            console = plain_console()
            for one in render(found, now()):
                console.print(one)


def plain_console() -> Console:
    """Return what writes for people: nothing that it is given is taken for markup."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, highlight=False, markup=False, emoji=False)


def end(message: str, status: int) -> NoReturn:
    """Say *message* and end."""
    warn(message)
    raise typer.Exit(status)


def warn(message: str) -> None:
    """Tell the user, not the program that reads."""
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(
        shown(f"sunkctl: {message}"), soft_wrap=True
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first  # pyright: ignore[reportUnknownArgumentType] - isinstance loses the argument
