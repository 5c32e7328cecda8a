"""Services that are killed at each `await` of what they do: what they were at is done once all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EACH = "8"
"""All of them take minutes of a core: each eighth await."""


def tell(story: str) -> None:
    """Tell a story of `sunk_simulation.kills`."""
    done = subprocess.run(
        [sys.executable, "-m", "sunk_simulation.kills", story],
        cwd=ROOT,
        env={
            "PYTHONPATH": str(ROOT / "tests/simulation"),
            "PYTHONHASHSEED": "0",
            "PATH": os.defpath,
            "SUNK_KILLS_EACH": EACH,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]


@pytest.mark.timeout(900)
def test_killed_at_any_await_once_gpus_are_announced_the_controller_makes_one_pod_and_with_them() -> None:
    tell("announced")


@pytest.mark.timeout(900)
def test_killed_at_any_await_when_a_wait_for_gpus_begins_the_controller_says_so_and_makes_no_pod() -> None:
    tell("beginning")


def test_killed_again_and_again_the_controller_waits_no_longer_for_gpus_that_never_come() -> None:
    tell("forever")
