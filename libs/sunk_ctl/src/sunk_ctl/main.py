"""`sunkctl`: arguments to one question, its answer to the terminal, and how it went to an exit status.

0: answered; 1: it failed, and one sentence says why; 2: wrong usage; 3: the user may not; 4: there is no such
thing; 5: no answer now.
"""

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeVar
from urllib.parse import quote

import anyio
import msgspec
import typer
import yaml
from rich.console import Console, RenderableType

from sunk_bus.main import main as bus_main
from sunk_ctl import tables
from sunk_ctl.cluster import NOT_FOUND, Cluster, NoAnswerError, opened
from sunk_ctl.config import kubeconfig
from sunk_ctl.texts import as_json, shown
from sunk_events.view import Explained, Jobs, Locks, Nodes, Pods, Status
from sunk_kube.resources import is_name
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError

T = TypeVar("T", bound=msgspec.Struct)
Render = Callable[[T, datetime], list[RenderableType]]

_WIDE: Final = 240
"""Without a terminal there is no width to keep."""
app = typer.Typer(
    name="sunkctl",
    help="Show what Slurm and Kubernetes do together, and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Form(StrEnum):
    """How to print the answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class What(StrEnum):
    """What can be explained."""

    NODE = "node"
    POD = "pod"
    JOB = "job"
    GANG = "gang"


Context = Annotated[
    str, typer.Option("--context", help="Context of the kubeconfig; default: the current one")
]
Config = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Kubeconfig; default: KUBECONFIG or ~/.kube/config")
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace; default: that of the context, or `default`")
]
Output = Annotated[Form, typer.Option("--output", "-o", help="Print a table for people, or JSON or YAML")]
Wide = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Pods of all namespaces")]


@app.command()
def status(context: Context = "", kubeconfig: Config = None, output: Output = Form.TABLE) -> None:
    """Show every Slurm cluster in one screen. Needs the ClusterRole sunk-view."""
    _run(context, kubeconfig, output, _get(Status, "/status"), tables.status)


@app.command()
def nodes(context: Context = "", kubeconfig: Config = None, output: Output = Form.TABLE) -> None:
    """List the nodes with their states, locks and drains. Needs the right to get Nodes."""
    _run(context, kubeconfig, output, _get(Nodes, "/nodes"), tables.nodes)


@app.command()
def jobs(context: Context = "", kubeconfig: Config = None, output: Output = Form.TABLE) -> None:
    """List the Slurm jobs that are not over. Needs the ClusterRole sunk-view."""
    _run(context, kubeconfig, output, _get(Jobs, "/jobs"), tables.jobs)


@app.command()
def locks(context: Context = "", kubeconfig: Config = None, output: Output = Form.TABLE) -> None:
    """List the locks of Nodes and the Pods in the way. Needs the ClusterRole sunk-view."""
    _run(context, kubeconfig, output, _get(Locks, "/locks"), tables.locks)


@app.command()
def pods(
    namespace: Namespace = "",
    all_namespaces: Wide = False,  # noqa: FBT002 - an option
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """List the Pods that Slurm places. Needs the right to list Pods; with -A the ClusterRole sunk-view."""

    async def get(cluster: Cluster) -> Pods:
        if all_namespaces:
            return await cluster.get(Pods, "/placements")
        return await cluster.get(Pods, f"/namespaces/{_name(namespace or cluster.namespace)}/pods")

    _run(context, kubeconfig, output, get, tables.pods)


@app.command()
def explain(  # noqa: PLR0917 - typer takes arguments by position
    what: Annotated[What, typer.Argument(help="What to explain")],
    name: Annotated[str, typer.Argument(help="Its name, or the number of a job; NAMESPACE/NAME works too")],
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """Say why a node, a Pod, a job or a gang is as it is, and what would change it."""

    async def get(cluster: Cluster) -> Explained:
        return await cluster.get(Explained, path_of(what, name, namespace or cluster.namespace))

    _run(context, kubeconfig, output, get, tables.explained)


@app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def bus(context: typer.Context) -> None:
    """Look at the bus itself, as sunk-bus does. Needs the address and a user of NATS."""
    raise typer.Exit(bus_main(context.args))


def path_of(what: What, name: str, namespace: str) -> str:
    """Return where the explanation is. Raises `NoAnswerError` for what can be no name."""
    if what in {What.POD, What.GANG}:
        given, _, alone = name.rpartition("/")
        return f"/namespaces/{_name(given or namespace)}/{what}s/{_name(alone)}/explain"
    return f"/{what}s/{_name(name)}/explain"


def _name(name: str) -> str:
    if not is_name(name):
        raise NoAnswerError(f"{name!r} is no name of Kubernetes or Slurm", 2)
    return quote(name, safe="")


def _get(kind: type[T], path: str) -> Callable[[Cluster], Awaitable[T]]:
    async def get(cluster: Cluster) -> T:
        return await cluster.get(kind, path)

    return get


def _run(
    context: str,
    config: Path | None,
    output: Form,
    get: Callable[[Cluster], Awaitable[T]],
    render: Render[T],
) -> None:
    """Ask, and print; or say why not, and end with the status of that."""

    async def answered() -> T:
        async with opened(context, kubeconfig(config)) as cluster:
            return await get(cluster)

    try:
        try:
            found = anyio.run(answered)
        except BaseExceptionGroup as group:
            raise _first(group) from group
    except NoAnswerError as error:
        _end(str(error), error.status)
    except SunkError as error:
        _end(str(error), 1)
    else:
        _print(found, output, render)
        for problem in getattr(found, "problems", ()):
            _warn(problem)
        if isinstance(found, Explained):
            _require_known(found)


def _print(found: T, output: Form, render: Render[T]) -> None:
    match output:
        case Form.JSON:
            sys.stdout.write(as_json(found) + "\n")
        case Form.YAML:
            yaml.safe_dump(msgspec.to_builtins(found), sys.stdout, sort_keys=False)
        case Form.TABLE:
            width = None if sys.stdout.isatty() else _WIDE
            console = Console(width=width, highlight=False, markup=False, emoji=False)
            for one in render(found, now()):
                console.print(one)


def _require_known(found: Explained) -> None:
    """End with 4 where nothing is known of it."""
    if found.near or not found.parts:
        near = f": did you mean {', '.join(found.near)}?" if found.near else ""
        _end(f"no {found.what} {found.name} is known{near}", NOT_FOUND)


def _end(message: str, status: int) -> None:
    _warn(message)
    raise typer.Exit(status)


def _warn(message: str) -> None:
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(
        shown(f"sunkctl: {message}"), soft_wrap=True
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first  # pyright: ignore[reportUnknownArgumentType] - isinstance loses the argument


def main() -> None:
    """Run the program."""
    app()
