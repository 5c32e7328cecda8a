"""Writes `docs/cli.md` and `docs/sunkctl-commands.md`: the commands of both programs, from their parsers.

``--check`` as in `gen_schemas.py`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import typer
from generated import settle
from typer.core import TyperCommand, TyperGroup

from sunk_bus.arguments import parser_of_all
from sunk_ctl.main import app

PAGE: Final = Path("docs/cli.md")
HEAD: Final = """# Commands of sunk-bus

`./task gen` writes this page from the program; do not edit it by hand. [bus.md](bus.md) shows how to use the
program, with examples of what it prints. `./task bus -- COMMAND` runs it in a checkout.
"""
SUNKCTL_PAGE: Final = Path("docs/sunkctl-commands.md")
SUNKCTL_HEAD: Final = """# Commands of sunkctl

`./task gen` writes this page from the program; do not edit it by hand. `sunkctl COMMAND --help` prints the
same. [sunkctl.md](sunkctl.md) says how to install the program, what each command shows, and which rights it
needs. `kubectl sunk COMMAND` is the same program. `sunkctl bus` takes [the commands of sunk-bus](cli.md).
"""


def sunkctl_page() -> str:
    """Return the page about `sunkctl`."""
    group = cast("TyperGroup", typer.main.get_command(app))
    commands: dict[str, TyperCommand] = getattr(group, "commands", {})
    parts = [SUNKCTL_HEAD, _help_table("sunkctl", group)]
    for name, command in commands.items():
        context = typer.Context(command, info_name=f"sunkctl {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        parts.append(f"\n## {name}\n\n{' '.join((command.help or '').split())}\n")
        parts.append(f"\n    sunkctl {name} {usage}\n{_help_table(name, command)}")
    return "".join(parts)


def _help_table(name: str, command: TyperCommand | TyperGroup) -> str:
    context = typer.Context(command, info_name=name)
    records = (option.get_help_record(context) for option in command.get_params(context))
    rows = [
        f"| `{names.replace('|', ' or ')}` | {_sentence(' '.join(text.split()))} |\n"
        for names, text in filter(None, records)
        if "--help" not in names
    ]
    return f"\n| argument | meaning |\n| --- | --- |\n{''.join(rows)}" if rows else ""


def page() -> str:
    """Return the page about `sunk-bus`."""
    parser, commands = parser_of_all()
    common = {name for option in _options(parser) for name in option.option_strings}
    parts = [HEAD, "\n## Options of every command\n", _table(_options(parser)), f"\n{parser.epilog}\n"]
    for name, command in commands.items():
        usage = " ".join([f"sunk-bus {name}", *(_place(one) for one in _places(command))])
        own = [one for one in _options(command) if not common & set(one.option_strings)]
        parts.append(f"\n## {name}\n\n{command.description}\n\n    {usage}\n")
        parts.append(_table([*_places(command), *own]))
        if command.epilog:
            parts.append(f"\n{command.epilog}\n")
    return "".join(parts).rstrip() + "\n"


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [one for one in _actions(parser) if one.option_strings and "--help" not in one.option_strings]


def _places(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [one for one in _actions(parser) if not one.option_strings]


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    # argparse lists its arguments in no other way.
    yield from parser._actions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _place(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest).upper()
    return f"[{name}]" if action.nargs in {"?", "*"} else name


def _table(actions: list[argparse.Action]) -> str:
    if not actions:
        return ""
    rows = "".join(f"| {_names(one)} | {_sentence(one.help or '')} |\n" for one in actions)
    return f"\n| argument | meaning |\n| --- | --- |\n{rows}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        words = action.choices or [str(action.metavar or action.dest).upper()]
        return ", ".join(f"`{word}`" for word in words)
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle({PAGE: page(), SUNKCTL_PAGE: sunkctl_page()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
