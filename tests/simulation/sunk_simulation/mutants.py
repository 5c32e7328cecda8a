"""Puts faults back that were mended, one at a time, and sees whether the simulator finds them.

    ./task mutants                              # replays the kept seed of each
    ./task mutants -- failed_list --seeds 50    # looks for a seed that finds it, and keeps that

A mutant is a patch in ``mutants/`` whose head says what it is, in lines of ``name: value``. It is applied to
copies of the packages that it changes. Whoever changes that code changes the patch in the same commit.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from sunk_simulation.kept import ROOT, Case, run

PATCHES: Final = Path(__file__).parents[1] / "mutants"
_HEAD: Final = re.compile(r"^(\w+): (.*)$")
_CHANGED: Final = re.compile(r"^\+\+\+ b/((?:libs|services)/[^/]+/src)/", re.MULTILINE)


class Mutant(msgspec.Struct, frozen=True):
    """One fault that is put back."""

    path: Path
    what: str
    """What is wrong again."""
    mended: str
    """The commit that mended it."""
    breaks: str
    """The checks that may find it, with bars between."""
    story: str
    hours: float
    seed: int | None = None
    """That finds it; None: none is known."""
    only: tuple[str, ...] | None = None
    slow: str = ""
    """Why its seed is replayed on request only."""

    @property
    def name(self) -> str:
        """How it is called."""
        return self.path.stem

    @property
    def case(self) -> Case | None:
        """The case that is kept."""
        if self.seed is None:
            return None
        return Case(story=self.story, seed=self.seed, hours=self.hours, only=self.only)


def mutants() -> list[Mutant]:
    """Return all of them."""
    return [read(path) for path in sorted(PATCHES.glob("*.patch"))]


def read(path: Path) -> Mutant:
    """Read the head of a patch."""
    head = path.read_text().partition("\ndiff --git")[0]
    found = {match[1]: match[2] for line in head.splitlines() if (match := _HEAD.match(line))}
    more: dict[str, object] = {name: value for name, value in found.items() if name != "only"}
    if "only" in found:
        more["only"] = tuple(found["only"].split(","))
    return msgspec.convert({**more, "path": path}, Mutant, strict=False)


@contextmanager
def put_back(mutant: Mutant) -> Generator[list[Path]]:
    """Apply *mutant* to copies of the packages that it changes; yield where these are.

    Raises:
        RuntimeError: it does not apply any more.
    """
    text = mutant.path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        sources = sorted(set(_CHANGED.findall(text)))
        for source in sources:
            shutil.copytree(ROOT / source, Path(folder, source))
        done = subprocess.run(
            ["git", "apply", "--unsafe-paths", "-p1", str(mutant.path)],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{mutant.path.name} does not apply: {done.stderr.strip()}")
        yield [Path(folder, source) for source in sources]


def is_found(mutant: Mutant, arguments: list[str]) -> tuple[bool, str]:
    """Run the simulator on the mutant; return whether one of its checks broke, and what was said."""
    with put_back(mutant) as instead:
        done = run(arguments, *instead)
    said = done.stdout[-6000:] + done.stderr[-3000:]
    return done.returncode == 1 and bool(re.search(rf"failed: seed \d+: ({mutant.breaks}):", said)), said


def main() -> int:
    """Replay, or look for seeds; return 1 if one was not found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of their names; none: all")
    parser.add_argument("--seeds", type=int, default=0, help="so many new ones are looked through")
    parser.add_argument("--seed", type=int, default=1, help="the first of these")
    parser.add_argument("--shrink", action="store_true", help="keep only the items that it takes")
    given = parser.parse_args()
    missed = 0
    for mutant in mutants():
        if given.names and not any(name in mutant.name for name in given.names):
            continue
        if given.seeds:
            told = _look_for(mutant, range(given.seed, given.seed + given.seeds), shrinks=given.shrink)
        elif mutant.case is None:
            told = None
        else:
            found, _ = is_found(mutant, mutant.case.arguments())
            told = f"seed {mutant.seed}" if found else None
        missed += told is None
        print(f"{mutant.name}: {'found by ' + told if told else 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


def _look_for(mutant: Mutant, seeds: range, *, shrinks: bool) -> str | None:
    """Return which seed finds it, and keep it in its head."""
    case = Case(story=mutant.story, seed=seeds.start, hours=mutant.hours)
    how = "--shrink" if shrinks else "--first"
    found, said = is_found(mutant, [*case.arguments(), "--seeds", str(len(seeds)), how])
    seed, only = re.search(r"^seed (\d+) failed", said, re.MULTILINE), re.search(r"--only (\S*)", said)
    if not found or seed is None:
        print(said[-3000:])
        return None
    kept = f"seed: {seed[1]}\n" + (f"only: {only[1]}\n" if only else "")
    text = re.sub(r"^(seed|only): .*\n", "", mutant.path.read_text(), flags=re.MULTILINE)
    mutant.path.write_text(text.replace("diff --git", f"{kept}diff --git", 1))
    return kept.replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
