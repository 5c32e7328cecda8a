"""NodeSets are as they are wanted on the models of Kubernetes, Slurm and NATS, whatever goes wrong."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sunk_simulation", "--story", "nodesets", *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests/simulation"), "PYTHONHASHSEED": "0", "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    return done.stdout


def test_nodes_are_as_it_is_wanted_whatever_goes_wrong() -> None:
    assert "2 seeds of 0.1 h, 0 failed" in run("--seed", "5", "--seeds", "2", "--hours", "0.1")
