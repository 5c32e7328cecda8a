"""The tutorials, run as written: each command in its turn, in one shell; what a page shows is printed.

`./task test:install -- -k tutorial` runs them, a quarter of an hour or more.
"""

import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, Final, cast

import pytest

from sunk_lab.kube.lab import KubeLab
from sunk_lab.pages import Step, steps
from sunk_lab.processes import environment
from sunk_lab.reserved import reserved

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted((ROOT / "docs/tutorials").glob("*.md"))
REPEAT_S: Final = 300
"""How long a command may be repeated until it prints what the page shows: Slurm lets a job that is queued
again wait for two minutes."""
DONE: Final = "the-step-is-done"


class Terminal:
    """A shell as a reader has it: functions and variables of one step are there in the next."""

    def __init__(self, number: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/bash", "-u", "-E", "-o", "pipefail"],
            cwd=ROOT,
            env=environment({"SUNK_LAB_NUMBER": str(number)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, commands: str) -> tuple[str, int]:
        """Return what *commands* print, and the exit status of the last that fails, else 0."""
        into = cast("IO[str]", self._shell.stdin)
        into.write(f"failed=0; trap 'failed=$?' ERR\n{{\n{commands}\n}} </dev/null\n")
        into.write(f"printf '\\n%s %s\\n' {DONE} $failed\n")
        into.flush()
        printed: list[str] = []
        for line in cast("IO[str]", self._shell.stdout):
            if line.startswith(DONE):
                return "".join(printed), int(line.split()[1])
            printed.append(line)
        return "".join(printed), self._shell.wait()

    def close(self) -> None:
        """End the shell."""
        self._shell.kill()
        self._shell.communicate()


@pytest.fixture
def terminal() -> Generator[Terminal]:
    """A terminal whose lab no other test uses, and which is down afterwards."""
    with reserved() as config:
        lab = KubeLab(config.number, folder=config.folder / "kube", cache=config.cache, report=print)
        made = Terminal(config.number)
        try:
            yield made
        finally:
            made.close()
            lab.down()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_of_a_tutorial_is_bash_and_each_lab_is_removed(page: Path) -> None:
    found = steps(page.read_text())

    for step in found:
        checked = subprocess.run(
            ["/bin/bash", "-n"], input=step.commands, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, ""), step.commands
    assert found[0].commands.startswith("./task cluster:up")
    assert found[-1].commands == "./task cluster:down\n"


@pytest.mark.lab
@pytest.mark.install
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_written(page: Path, terminal: Terminal) -> None:
    for step in steps(page.read_text()):
        printed, status = terminal.run(step.commands)
        if step.shown:
            printed = repeated(terminal, step, printed)
            assert step.is_shown(printed), (
                f"{step.commands}\nprinted:\n{printed}\nthe page shows:\n{step.shown}"
            )
        else:
            assert status == 0, f"{step.commands}\nprinted:\n{printed}"


def repeated(terminal: Terminal, step: Step, printed: str) -> str:
    """Return what a command that only reads prints at last: the page says to repeat it."""
    deadline = time.monotonic() + REPEAT_S
    while not step.is_shown(printed) and time.monotonic() < deadline:
        time.sleep(1)
        printed, _ = terminal.run(step.commands)
    return printed
