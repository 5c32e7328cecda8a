"""What may be typed after `sunk-bus`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from sunk_bus.explain import WHAT
from sunk_bus.patterns import PLACES
from sunk_bus.states import names_of_buckets


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments; a wrong one ends the process with 2 and the usage."""
    common = _common()
    parser = argparse.ArgumentParser(
        prog="sunk-bus",
        description="Facts, states and dead letters on the bus.",
        epilog="Options that are not given come from SUNK_BUS_URL, SUNK_BUS_USER and so on.",
        parents=[common],
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _tail(commands.add_parser("tail", parents=[common], help="facts as they happen", epilog=_TAIL_EPILOG))
    _state(commands.add_parser("state", parents=[common], help="what is now, by bucket and key"))
    _dead(
        commands.add_parser("dead-letters", parents=[common], help="what could not be handled, and once more")
    )
    commands.add_parser("streams", parents=[common], help="is the bus well: streams, consumers, leases")
    _explain(commands.add_parser("explain", parents=[common], help="why something is as it is"))
    return parser.parse_args(argv)


_TAIL_EPILOG = f"Subjects: {', '.join(PLACES)}, each with .NAME or .NAME.WORD; a word; a name; dead."


def _common() -> argparse.ArgumentParser:
    """Return the options that may stand before and after the command."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--url", help="where NATS is; several with commas between")
    common.add_argument("--user", help="our user there")
    common.add_argument("--password-file", type=Path, metavar="FILE", help="the user's password")
    common.add_argument("--creds", type=Path, metavar="FILE", help="a NATS credentials file, instead")
    common.add_argument("--cluster", help="the one Slurm cluster to look at; else all on this bus")
    common.add_argument(
        "--timeout", type=float, dest="timeout_s", metavar="SECONDS", help="how long to try to connect (5)"
    )
    common.add_argument("-v", "--verbose", action="store_true", help="say what the connection does")
    return common


def _tail(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", nargs="?", default="", help="which facts; all without")
    parser.add_argument("--since", metavar="DURATION", help="those of the last 10m, 2h, 1d too")
    parser.add_argument("--last", type=int, metavar="N", help="the last N too, of each cluster")
    parser.add_argument("--json", action="store_true", help="each as it was published, a line each")
    parser.add_argument("--no-follow", action="store_true", help="end after what is stored")


def _state(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(names_of_buckets())
    parser.add_argument("bucket", nargs="?", default="", help=f"one of {names}; without, what there is")
    parser.add_argument("key", nargs="?", default="", help="a key, shown whole; or a glob such as 'gpu-*'")
    parser.add_argument("--watch", action="store_true", help="go on with what changes")
    parser.add_argument("--json", action="store_true", help="a line a key: key, revision, stored, value")


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("name", help="a Slurm node's name, a job's id, a Pod's NAMESPACE/NAME")


def _dead(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="show ID", help="show one letter whole; else list them")
    parser.add_argument(
        "--replay",
        default="",
        metavar="ID",
        help="publish its message again; `all` for all that the filters let through",
    )
    parser.add_argument("--by", default="", metavar="GLOB", help="only those that this service wrote")
    parser.add_argument(
        "--on", default="", metavar="GLOB", help="only those whose message came on this subject"
    )
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="how many to list (50)")
    parser.add_argument("--yes", action="store_true", help="do not ask before `--replay all`")
    parser.add_argument(
        "--wait",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long to look what comes of a replay (5)",
    )
