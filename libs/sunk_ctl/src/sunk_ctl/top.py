"""`sunkctl top`: the status again and again, in place on a terminal.

What must stay true: an answer that is old never looks new. Where the next one does not come, the last stands
below a line that says since when and why.
"""

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final

import anyio
import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live

from sunk_ctl import tables
from sunk_ctl.cluster import Cluster
from sunk_ctl.following import REFUSED_MAX
from sunk_ctl.refusals import LoggedOutError, NoAnswerError
from sunk_ctl.running import Config, Context, answered, plain_console
from sunk_ctl.texts import shown, since
from sunk_events.view import Status
from sunk_runtime.clock import now

LEAST_S: Final = 1.0
"""A user may ask five times a second, for all that they do."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer, when it came, and why none came since."""

    status: Status
    at: datetime
    problem: str = ""


def screen(seen: Seen, moment: datetime) -> list[RenderableType]:
    """Return what to show at *moment*."""
    stamp = f"{seen.at:%Y-%m-%d %H:%M:%S} UTC"
    head = shown(stamp)
    if seen.problem:
        head = shown(f"{stamp}, {since(seen.at, moment)} old: {seen.problem}", "red")
    return [head, *tables.status(seen.status, moment)]


def top(
    interval: Annotated[float, typer.Option("--interval", min=LEAST_S, help="Seconds between two")] = 2.0,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many; 0: go on")] = 0,
    context: Context = "",
    kubeconfig: Config = None,
) -> None:
    """Show `status` again and again. Needs the ClusterRole sunk-view."""
    console = plain_console()

    async def get(cluster: Cluster) -> None:
        if not sys.stdout.isatty():
            await repeat(cluster, lambda seen: _write(console, seen), interval, count)
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            await repeat(
                cluster, lambda seen: live.update(Group(*screen(seen, now())), refresh=True), interval, count
            )

    try:
        answered(context, kubeconfig, get)
    except KeyboardInterrupt as stopped:
        raise typer.Exit(0) from stopped


async def repeat(cluster: Cluster, draw: Callable[[Seen], None], interval_s: float, count: int) -> None:
    """Ask and draw *count* times, or until cancelled.

    Raises:
        NoAnswerError: the first did not come, or the user may not any longer, or is not known any longer.
    """
    seen: Seen | None = None
    drawn = refused = 0
    while True:
        try:
            seen = Seen(status=await cluster.get(Status, "/status"), at=now())
            refused = 0
        except NoAnswerError as error:
            refused = refused + 1 if isinstance(error, LoggedOutError) else 0
            if seen is None or not error.may_pass or refused == REFUSED_MAX:
                raise
            seen = msgspec.structs.replace(seen, problem=str(error))
        draw(seen)
        drawn += 1
        if drawn == count:
            return
        await anyio.sleep(interval_s)


def _write(console: Console, seen: Seen) -> None:
    for one in screen(seen, now()):
        console.print(one)
    sys.stdout.flush()
