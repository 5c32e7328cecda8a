"""Cases that are kept: a seed of a story and what happens in it, run in a fresh process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sunk_simulation.ambient import install

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


def run(
    arguments: Sequence[str], *instead: Path, module: str = "sunk_simulation"
) -> "subprocess.CompletedProcess[str]":
    """Run the simulator in a fresh process; packages are taken from *instead* where these have them."""
    paths = [*instead, ROOT / "tests/simulation"]
    env = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONHASHSEED": "0", "PATH": os.defpath}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def holds(case: Case) -> None:
    """See that nothing breaks in *case*."""
    all_hold([case])


def all_hold(cases: Sequence[Case]) -> None:
    """See that nothing breaks in *cases*, one after the other: what they need is imported once."""
    words = msgspec.json.encode(cases).decode()
    done = run([words], module="sunk_simulation.kept")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


def main() -> int:
    """Run cases; return 1 if something broke in one, after saying what and how to run it again."""
    from sunk_simulation import runs  # noqa: PLC0415 - services are imported below what `install` puts in place

    runs.freeze()
    cases = msgspec.json.decode(sys.argv[1], type=list[Case])
    asked = [(case.seed, runs.Options(case.hours, story=case.story, only=case.only)) for case in cases]
    broken = 0
    for case, outcome in zip(cases, runs.outcomes(asked), strict=True):
        if outcome.said:
            broken += 1
            runs.tell_failure(outcome)
            print(f"one again: ./task simulate -- {' '.join(case.arguments())} --trace", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    install()
    sys.exit(main())
