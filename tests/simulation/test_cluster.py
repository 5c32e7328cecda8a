"""All five services keep a cluster as it is wanted, whatever goes wrong; a seed is the same each time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "sunk_simulation", "--story", "cluster", *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests/simulation"), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.timeout(900)
def test_nothing_happens_that_must_not_and_all_is_as_it_is_wanted_in_the_end_each_time() -> None:
    first = run("--seed", "3", "--hours", "0.03")

    assert "1 seeds of 0.03 h, 0 failed" in first[-1]
    assert first[-2].rpartition(",")[0] == run("--seed", "3", "--hours", "0.03")[-2].rpartition(",")[0]
