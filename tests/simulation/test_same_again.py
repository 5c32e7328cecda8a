"""Two runs of a seed are the same, byte for byte, in processes that know nothing of each other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str, hash_seed: str, more: str = "") -> list[str]:
    env = {"PYTHONPATH": str(ROOT / "tests/simulation"), "PYTHONHASHSEED": hash_seed, "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-m", "sunk_simulation", "--trace", *arguments],
        cwd=ROOT,
        env={**env, "UNRELATED": more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) > 100
    return [
        line.rpartition(",")[0] if line.startswith("seed") else line for line in lines[:-1]
    ]  # No CPU time.


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("story", "hours"), [("proof", "0.12"), ("nodesets", "0.05"), ("cluster", "0.02")])
def test_a_seed_gives_the_same_trace_in_every_process(story: str, hours: str) -> None:
    asked = "--story", story, "--seed", "5", "--hours", hours
    first = run(*asked, hash_seed="1")

    assert first == run(*asked, hash_seed="2", more="x" * 5000)


def test_a_seed_is_the_same_alone_and_among_others() -> None:
    among = run("--seed", "5", "--seeds", "2", "--hours", "0.06", hash_seed="0")
    alone = run("--seed", "6", "--hours", "0.06", hash_seed="0")

    # Branches of decisions are marked where there are several, for the summary that follows.
    ends = among.index(alone[-1]) + 1
    assert among[ends - len(alone) : ends] == alone


def test_another_seed_is_another_story() -> None:
    assert run("--seed", "1", "--hours", "0.06", hash_seed="0") != run(
        "--seed", "2", "--hours", "0.06", hash_seed="0"
    )
