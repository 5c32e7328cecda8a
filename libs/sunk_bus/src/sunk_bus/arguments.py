"""What may be typed after `sunk-bus`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from sunk_bus.explain import WHAT
from sunk_bus.patterns import PLACES
from sunk_bus.states import names_of_buckets


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments; a wrong one ends the process with 2 and the usage."""
    return parser_of_all()[0].parse_args(argv)


def parser_of_all() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser, and that of each command by its name."""
    common = _common()
    parser = argparse.ArgumentParser(
        prog="sunk-bus",
        description="Facts, states and dead letters on the bus.",
        epilog="Options that are not given come from SUNK_BUS_URL, SUNK_BUS_USER and so on.",
        parents=[common],
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    made: dict[str, argparse.ArgumentParser] = {}

    def add(name: str, text: str, epilog: str | None = None) -> argparse.ArgumentParser:
        made[name] = commands.add_parser(
            name, parents=[common], help=text, description=f"{text[:1].upper()}{text[1:]}.", epilog=epilog
        )
        return made[name]

    _tail(add("tail", "show facts as they happen", _TAIL_EPILOG))
    _state(add("state", "show states, by bucket and key"))
    _dead(add("dead-letters", "list messages that a service could not handle, and publish them again"))
    add("streams", "show the health of the bus: streams, consumers, leases")
    _explain(add("explain", "explain the state of a node, a job or a Pod"))
    return parser, made


_TAIL_EPILOG = f"Subjects: {', '.join(PLACES)}, each with .NAME or .NAME.WORD; a word; a name; dead."


def _common() -> argparse.ArgumentParser:
    """Return the options that may stand before and after the command."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--url", help="address of NATS; several addresses with commas between them")
    common.add_argument("--user", help="the user on NATS")
    common.add_argument("--password-file", type=Path, metavar="FILE", help="the user's password")
    common.add_argument(
        "--creds", type=Path, metavar="FILE", help="a NATS credentials file, instead of user and password"
    )
    common.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="CA certificates of NATS; with it only TLS is used"
    )
    common.add_argument("--cluster", help="show this Slurm cluster only; default: all clusters of this bus")
    common.add_argument(
        "--timeout", type=float, dest="timeout_s", metavar="SECONDS", help="how long to try to connect (5)"
    )
    common.add_argument("-v", "--verbose", action="store_true", help="show what the connection does")
    return common


def _tail(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", nargs="?", default="", help="which facts to show; default: all")
    parser.add_argument(
        "--since", metavar="DURATION", help="also show stored facts of this time, such as 10m, 2h or 1d"
    )
    parser.add_argument(
        "--last", type=int, metavar="N", help="also show the last N stored facts of each cluster"
    )
    parser.add_argument(
        "--json", action="store_true", help="print each fact as it was published, one per line"
    )
    parser.add_argument("--no-follow", action="store_true", help="end after the stored facts")


def _state(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(names_of_buckets())
    parser.add_argument("bucket", nargs="?", default="", help=f"one of {names}; default: list the buckets")
    parser.add_argument(
        "key", nargs="?", default="", help="a key, to show its whole value, or a glob such as 'gpu-*'"
    )
    parser.add_argument("--watch", action="store_true", help="continue with each change")
    parser.add_argument(
        "--json", action="store_true", help="print one line per key: key, revision, time stored, value"
    )


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=WHAT, help="what to explain")
    parser.add_argument("name", help="the name of a Slurm node, the id of a job, or NAMESPACE/NAME of a Pod")


def _dead(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="show ID", help="show one dead letter as a whole; default: list them"
    )
    parser.add_argument(
        "--replay",
        default="",
        metavar="ID",
        help="publish the message of this dead letter again; `all`: those of all that the filters select",
    )
    parser.add_argument("--by", default="", metavar="GLOB", help="only dead letters of this service")
    parser.add_argument(
        "--on", default="", metavar="GLOB", help="only dead letters of messages on this subject"
    )
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="list at most this many (50)")
    parser.add_argument("--yes", action="store_true", help="do not ask before `--replay all`")
    parser.add_argument(
        "--wait",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long to watch the result of a replay (5)",
    )
