"""Nothing happens that must not, and all is as it is wanted in the end, in two hundred seeds of all stories.

The seeds are the same in every run: what fails here fails again. `./task simulate` looks for new ones.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = "29"
HOURS_BY_STORY = {
    "cluster": "0.02",
    "crowd": "0.03",
    "jobs": "0.03",
    "looks": "0.03",
    "nodesets": "0.05",
    "proof": "0.05",
    "scenes": "0.04",
}


@pytest.mark.timeout(3600)  # Four minutes of a core of its own; others may want it too.
@pytest.mark.parametrize("story", HOURS_BY_STORY)
def test_no_seed_of_a_story_fails(story: str) -> None:
    words = ("--first", "--cores", "1", "--seed", "1001", "--seeds", SEEDS)
    done = subprocess.run(
        [sys.executable, "-m", "sunk_simulation", "--story", story, "--hours", HOURS_BY_STORY[story], *words],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests/simulation"), "PYTHONHASHSEED": "0", "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "no seed failed"


def test_every_story_has_its_seeds() -> None:
    code = (
        "import sunk_simulation.__main__; from sunk_simulation.runs import STORIES; print(*sorted(STORIES))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests/simulation"), "PYTHONHASHSEED": "0", "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout.split() == sorted(HOURS_BY_STORY)
