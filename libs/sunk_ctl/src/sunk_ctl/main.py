"""`sunkctl`: arguments to one question, its answer to the terminal, and how it went to an exit status.

0: answered, or done; 1: it failed, and one sentence says why; 2: wrong usage; 3: the user may not, or is not
known; 4: there is no such thing; 5: no answer now.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer

from sunk_bus.main import main as bus_main
from sunk_ctl import bundle_command, doctor_command, event_commands, node_commands, tables, top, ui
from sunk_ctl.cluster import Cluster
from sunk_ctl.reading_errors import status_with_errors
from sunk_ctl.refusals import NOT_FOUND
from sunk_ctl.running import (
    Config,
    Context,
    Form,
    Namespace,
    Output,
    Render,
    answered,
    end,
    name_of,
    show,
    warn,
)
from sunk_events.view import Explained, Jobs, Locks, Nodes, Pods

T = TypeVar("T", bound=msgspec.Struct)

app = typer.Typer(
    name="sunkctl",
    help="Show what Slurm and Kubernetes do together, and why; take nodes out and back.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (
    top.top,
    event_commands.events,
    ui.ui,
    node_commands.drain,
    node_commands.undrain,
    node_commands.reboot,
    doctor_command.doctor,
    bundle_command.support_bundle,
):
    app.command()(_command)


class What(StrEnum):
    """What can be explained."""

    NODE = "node"
    POD = "pod"
    JOB = "job"
    GANG = "gang"


Wide = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Pods of all namespaces")]


@app.command()
def status(context: Context = "", kubeconfig: Config = None, output: Output = Form.TABLE) -> None:
    """Show every Slurm cluster in one screen. Needs the ClusterRole sunk-view; the last errors need more."""
    _run(context, kubeconfig, output, status_with_errors, tables.status_with_errors)


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
        return await cluster.get(Pods, f"/namespaces/{name_of(namespace or cluster.namespace)}/pods")

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
    """Explain the state of a node, a Pod, a job or a gang, and what would change it."""

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
        return f"/namespaces/{name_of(given or namespace)}/{what}s/{name_of(alone)}/explain"
    return f"/{what}s/{name_of(name)}/explain"


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
    """Ask, and print; or say why not."""
    found = answered(context, config, get)
    show(found, output, render)
    for problem in getattr(found, "problems", ()):
        warn(problem)
    if isinstance(found, Explained):
        _require_known(found)


def _require_known(found: Explained) -> None:
    """End with 4 where nothing is known of it."""
    if found.is_unknown or found.near or not found.parts:
        near = f": did you mean {', '.join(found.near)}?" if found.near else ""
        end(f"no {found.what} {found.name} is known{near}", NOT_FOUND)


def main() -> None:
    """Run the program."""
    app()
