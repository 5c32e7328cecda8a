"""Runs tests that were written for real servers once more, with models in their place, in virtual time."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
_PLUGINS: Final = {
    "bus": "sunk_simulation.bus.pytest_plugin",
    "hooks": "sunk_simulation.hooks_pytest_plugin",
    "kubernetes": "sunk_simulation.kubernetes.pytest_plugin",
    "nodeset-controller": "sunk_simulation.nodeset_controller_pytest_plugin",
    "slurm": "sunk_simulation.slurm.pytest_plugin",
    "syncer": "sunk_simulation.syncer_pytest_plugin",
}


def run(file: str, *models: str, but: Iterable[str] = ()) -> None:
    """Run the tests of *file* on *models*, and assert that all pass and that there are some.

    Args:
        file: Where they stand, from the root of the project.
        models: Which servers are models, and which services processes of the simulation.
        but: Parts of names of tests that are not of the model.
    """
    plugins = [word for model in models for word in ("-p", _PLUGINS[model])]
    left_out = ["-k", " and ".join(f"not {name}" for name in but)] if but else []
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *plugins, *left_out]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, file],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests/simulation"), "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-5000:]}\nexit {done.returncode}: {done.stderr[-5000:]}"
    assert re.search(r"^[1-9]\d* passed", done.stdout, re.MULTILINE), done.stdout[-500:]
    assert "skipped" not in done.stdout
