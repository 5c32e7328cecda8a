"""`sunkctl events`: what happened, and what happens, a line each."""

import os
import sys
from typing import Annotated, Final

import msgspec
import typer
import yaml
from rich.text import Text

from sunk_bus.facts import Line, text_of
from sunk_bus.words import safe, seconds
from sunk_ctl.cluster import Cluster
from sunk_ctl.following import events as follow
from sunk_ctl.refusals import NoAnswerError
from sunk_ctl.running import Config, Context, Form, Namespace, Output, answered, name_of, plain_console, warn
from sunk_ctl.texts import json_line
from sunk_events.view import EventRow
from sunk_runtime.errors import ConfigError

DAY_S: Final = 86400


def events(  # noqa: PLR0917 - typer takes arguments by position
    node: Annotated[
        str,
        typer.Option("--node", help="Only events of this Slurm node, named by itself or its Kubernetes Node"),
    ] = "",
    pod: Annotated[str, typer.Option("--pod", help="Only events of this Pod; NAMESPACE/NAME works too")] = "",
    job: Annotated[str, typer.Option("--job", help="Only events of the Slurm job with this number")] = "",
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new events")] = False,  # noqa: FBT002 - an option
    last: Annotated[int, typer.Option("--last", min=1, max=200, help="Begin with the last N events")] = 50,
    since: Annotated[
        str, typer.Option("--since", help="Only events after this time, such as 10m or 2h ago; at most 7d")
    ] = "",
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """Show what happened to nodes, jobs and Pods. Needs sunk-view, or the right to get the Pod or Nodes."""

    async def get(cluster: Cluster) -> None:
        path = path_of(node, pod, job, namespace or cluster.namespace)
        query = {"last": str(last), **({"since": _since(since)} if since else {})}
        show = _Shown(output)
        await follow(cluster, path, query, show.take, warn, is_following=follow_)

    try:
        answered(context, kubeconfig, get)
    except KeyboardInterrupt as stopped:
        raise typer.Exit(0 if follow_ else 130) from stopped
    except BrokenPipeError as closed:  # The program that reads our lines has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from closed


def path_of(node: str, pod: str, job: str, namespace: str) -> str:
    """Return where the events of one thing are, or all. Raises `NoAnswerError`."""
    if len([one for one in (node, pod, job) if one]) > 1:
        raise NoAnswerError("--node, --pod, --job: give only one of them", 2)
    if pod:
        given, _, alone = pod.rpartition("/")
        return f"/namespaces/{name_of(given or namespace)}/pods/{name_of(alone)}/events"
    if node or job:
        return f"/nodes/{name_of(node)}/events" if node else f"/jobs/{name_of(job)}/events"
    return "/events"


def _since(text: str) -> str:
    try:
        found = seconds(text[:20])
    except ConfigError as error:
        raise NoAnswerError(f"--since: {error}", 2) from error
    if not 1 <= found <= 7 * DAY_S:
        raise NoAnswerError("--since: give a time from 1s to 7d", 2)
    return str(round(found))


class _Shown:
    """Writes events as they come: each whole line at once."""

    def __init__(self, output: Form) -> None:
        self._output = output
        self._console = plain_console()

    def take(self, rows: tuple[EventRow, ...]) -> None:
        """Write *rows*; a terminal or program that reads slowly holds us up, and nobody else."""
        for row in rows:
            match self._output:
                case Form.JSON:
                    sys.stdout.write(json_line(row) + "\n")
                case Form.YAML:
                    yaml.safe_dump(msgspec.to_builtins(row), sys.stdout, sort_keys=False, explicit_start=True)
                case Form.TABLE:
                    self._console.print(line_of(row), soft_wrap=True)
        sys.stdout.flush()


def line_of(row: EventRow) -> Text:
    """Return the line of an event."""
    name = f"{row.namespace}/{row.name}" if row.namespace else row.name
    words = "  ".join(map(safe, row.details))
    line = Line(row.time, safe(row.cluster), f"{safe(row.about)} {safe(name)}", safe(row.what), words)
    return text_of(line, has_cluster=True)
