"""`sunkctl top`: the status again and again, in place on a terminal.

What must stay true: an answer that is old never looks new. Where the next one does not come, the last stands
below a line that says since when and why. What a terminal has no room for is counted, and never what matters
first while there is room for that.
"""

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final

import anyio
import msgspec
import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.segment import Segment, SegmentLines
from rich.text import Text

from sunk_ctl import tables
from sunk_ctl.cluster import Cluster
from sunk_ctl.following import Refusals
from sunk_ctl.refusals import NoAnswerError
from sunk_ctl.running import Config, Context, answered, plain_console
from sunk_ctl.texts import shown, since
from sunk_events.view import Status
from sunk_runtime.clock import now

LEAST_S: Final = 1.0
"""A user may ask five times a second, for all that they do."""

TITLE_LINES: Final = 2
"""An empty one, and the names of columns: without a row they say nothing."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer, when it came, and why none came since."""

    status: Status
    at: datetime
    problem: str = ""


def screen(seen: Seen, moment: datetime) -> list[RenderableType]:
    """Return what to show at *moment*."""
    return [_head(seen, moment), *tables.status(seen.status, moment)]


def _head(seen: Seen, moment: datetime) -> Text:
    """Return when the status was true, and what is wrong with it."""
    stamp = f"{seen.at:%Y-%m-%d %H:%M:%S} UTC"
    old = f", {since(seen.at, moment)} old: {seen.problem}" if seen.problem else ""
    lines = [shown(f"{stamp}{old}", "red" if old else "")]
    return Text("\n").join([*lines, *(shown(problem, "red") for problem in seen.status.problems)])


def fitted(seen: Seen, moment: datetime, console: Console) -> SegmentLines:
    """Return what to show at *moment* in as many lines as *console* has; the last says what is missing."""

    def lines(some: list[RenderableType]) -> list[list[Segment]]:
        return [line for one in some for line in console.render_lines(one, pad=False)]

    found = lines([_head(seen, moment)])
    clusters = [
        (
            lines([*([Text()] if index else []), *tables.summary(one, moment)]),
            lines([Text(), *tables.details(one, moment)]),
        )
        for index, one in enumerate(seen.status.clusters)
    ]
    needed = len(found) + sum(len(first) + len(rest) for first, rest in clusters)
    is_cut = needed > console.height
    left = console.height - 1 - len(found) - sum(len(first) for first, _ in clusters)
    for index, (first, rest) in enumerate(clusters):
        share = left // (len(clusters) - index)
        some = rest if not is_cut else rest[:share] if share > TITLE_LINES else []
        left -= len(some)
        found += [*first, *some]
    if is_cut:
        found = found[: console.height - 1]
        more = shown(f"and {needed - len(found)} more lines: sunkctl status shows all", "bold")
        found += lines([more])[:1]
    return SegmentLines(found, new_lines=True)


def top(
    interval: Annotated[
        float, typer.Option("--interval", min=LEAST_S, help="Seconds between two updates")
    ] = 2.0,
    count: Annotated[int, typer.Option("--count", min=0, help="Stop after this many updates; 0: never")] = 0,
    context: Context = "",
    kubeconfig: Config = None,
) -> None:
    """Show `status` and update it. Needs the ClusterRole sunk-view."""
    console = plain_console()

    async def get(cluster: Cluster) -> None:
        if not sys.stdout.isatty():
            await repeat(cluster, lambda seen: _write(console, seen), interval, count)
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            await repeat(
                cluster, lambda seen: live.update(fitted(seen, now(), console), refresh=True), interval, count
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
    drawn, refusals = 0, Refusals()
    while True:
        try:
            seen = Seen(status=await cluster.get(Status, "/status"), at=now())
            refusals = Refusals()
        except NoAnswerError as error:
            if seen is None or not refusals.may_pass(error, anyio.current_time()):
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
