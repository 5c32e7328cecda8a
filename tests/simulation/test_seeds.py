"""Nothing happens that must not, and all is as it is wanted in the end, in two hundred seeds of all stories.

The seeds are the same in every run: what fails here fails again. `./task simulate` looks for new ones.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORIES = {
    "busy": ("0.02", 16),
    "cluster": ("0.02", 14),
    "crowd": ("0.03", 34),
    "jobs": ("0.03", 28),
    "looks": ("0.03", 36),
    "nodesets": ("0.05", 28),
    "proof": ("0.05", 28),
    "scenes": ("0.04", 16),
}
"""The hours of a seed, and how many: more of those that cost little."""
FIRST = 1066
"""Each story has one brisk seed then (`pace.of`), where services ask as often as by their defaults: it costs
five times as much as a calm one."""


@pytest.mark.timeout(3600)  # Four minutes of a core of its own; others may want it too.
@pytest.mark.parametrize("story", STORIES)
def test_no_seed_of_a_story_fails(story: str) -> None:
    hours, seeds = STORIES[story]
    words = ("--first", "--cores", "1", "--seed", str(FIRST), "--seeds", str(seeds))
    done = subprocess.run(
        [sys.executable, "-m", "sunk_simulation", "--story", story, "--hours", hours, *words],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests/simulation"), "PYTHONHASHSEED": "0", "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "no seed failed"


def test_each_story_has_one_seed_in_which_services_ask_as_often_as_by_their_defaults() -> None:
    numbers = [seeds for _, seeds in STORIES.values()]
    code = (
        "import sunk_simulation.ambient; from sunk_simulation import pace; "
        f"print(*(seed for seed in range({FIRST}, {FIRST + max(numbers)}) if pace.of(seed) is pace.BRISK))"
    )

    (brisk,) = _answer(code).split()

    assert int(brisk) < FIRST + min(numbers)


def test_every_story_has_its_seeds() -> None:
    assert sum(seeds for _, seeds in STORIES.values()) == 200
    code = (
        "import sunk_simulation.__main__; from sunk_simulation.runs import STORIES; print(*sorted(STORIES))"
    )

    assert _answer(code).split() == sorted(STORIES)


def _answer(code: str) -> str:
    """Return what *code* prints in an interpreter of its own: the simulator changes the one that it is in."""
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests/simulation"), "PYTHONHASHSEED": "0", "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout
