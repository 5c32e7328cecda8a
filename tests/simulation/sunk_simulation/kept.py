"""Cases that are kept: a seed of a story and what happens in it, run in a fresh process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[3]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is run."""

    story: str
    seed: int
    hours: float
    only: tuple[str, ...] | None = None

    def arguments(self) -> list[str]:
        """Return those of ``./task simulate`` that run it."""
        only = ["--only", ",".join(self.only)] if self.only is not None else []
        return ["--story", self.story, "--seed", str(self.seed), "--hours", f"{self.hours:g}", *only]


def run(arguments: Sequence[str], *instead: Path) -> "subprocess.CompletedProcess[str]":
    """Run the simulator in a fresh process; packages are taken from *instead* where these have them."""
    paths = [*instead, ROOT / "tests/simulation"]
    env = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONHASHSEED": "0", "PATH": os.defpath}
    return subprocess.run(
        [sys.executable, "-m", "sunk_simulation", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def holds(case: Case) -> None:
    """See that nothing breaks in *case*."""
    done = run(case.arguments())
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
