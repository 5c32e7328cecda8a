"""`sunk-bus`: arguments to one command, and how it ended to an exit status.

0: done, or ended with Ctrl-C while following; 1: one sentence on standard error says why; 2: wrong usage.
"""

import argparse
import logging
from collections.abc import Sequence
from typing import Final

import anyio

from sunk_bus.arguments import parse
from sunk_bus.config import settings
from sunk_bus.dead_letters import DeadOptions, dead_letters
from sunk_bus.explain import explain
from sunk_bus.output import Output
from sunk_bus.session import opened
from sunk_bus.state import StateOptions, state
from sunk_bus.streams import streams
from sunk_bus.tail import TailOptions, tail
from sunk_bus.words import seconds
from sunk_runtime.errors import ConfigError, SunkError

_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit status."""
    arguments = parse(argv)
    _log(is_verbose=getattr(arguments, "verbose", False))
    out = Output()
    status = 0
    try:
        try:
            anyio.run(_run, arguments, out)
        except* SunkError as failures:
            out.error(_first(failures))
            status = 1
    except KeyboardInterrupt:
        return 0 if arguments.command == "tail" or getattr(arguments, "watch", False) else _INTERRUPTED
    return status


async def _run(arguments: argparse.Namespace, out: Output) -> None:
    found = settings(vars(arguments))
    match arguments.command:
        case "tail":
            options = _tail_options(arguments)
            async with opened(found, out) as session:
                await tail(session, options)
        case "state":
            async with opened(found, out) as session:
                await state(session, _state_options(arguments))
        case "dead-letters":
            options = _dead_options(arguments)
            async with opened(found, out) as session:
                await dead_letters(session, options)
        case "explain":
            async with opened(found, out) as session:
                await explain(session, arguments.what, arguments.name)
        case _:
            async with opened(found, out) as session:
                await streams(session)


def _tail_options(arguments: argparse.Namespace) -> TailOptions:
    if arguments.last is not None and arguments.last < 1:
        raise ConfigError("--last: must be at least 1")
    return TailOptions(
        subject=arguments.subject,
        since_s=seconds(arguments.since) if arguments.since else None,
        last=arguments.last,
        is_json=arguments.json,
        is_following=not arguments.no_follow,
    )


def _state_options(arguments: argparse.Namespace) -> StateOptions:
    return StateOptions(
        bucket=arguments.bucket, key=arguments.key, is_json=arguments.json, is_following=arguments.watch
    )


def _dead_options(arguments: argparse.Namespace) -> DeadOptions:
    match arguments.words, arguments.replay:
        case [], _:
            show = ""
        case ["show", show], "":
            pass
        case _:
            raise ConfigError("write `dead-letters`, `dead-letters show ID` or `dead-letters --replay ID`")
    return DeadOptions(
        show=show,
        replay=arguments.replay,
        by=arguments.by,
        on=arguments.on,
        limit=max(1, arguments.limit),
        is_confirmed=arguments.yes,
        wait_s=arguments.wait,
    )


def _first(failures: ExceptionGroup[SunkError]) -> str:
    """Return the words of the first failure, however deep it is."""
    first: Exception = failures
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return str(first)


def _log(*, is_verbose: bool) -> None:
    """Keep the chassis's log to ourselves, unless asked for it."""
    if is_verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    else:
        logging.basicConfig(handlers=[logging.NullHandler()])
