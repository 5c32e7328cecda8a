"""oauth2-proxy, compiled from its Go module on first use."""

import hashlib
import platform
import shutil
from pathlib import Path
from typing import Final

from sunk_lab.kube import go
from sunk_lab.kube.prerequisites import Report
from sunk_lab.locks import alone

VERSION: Final = "v7.15.6"
_MODULE: Final = f"github.com/oauth2-proxy/oauth2-proxy/v7@{VERSION}"
_DIGEST: Final = "h1:4xZOFvyGysSUxdrEVyLjo+NduqGHbGV9bLE8XD49IJM="
"""Of the module, as go.sum has it."""


def build(cache: Path, report: Report) -> Path:
    """Return the program; compile it first if this machine has not yet.

    Raises:
        LabError: The module cannot be had or is another one, or does not compile.
    """
    digest = hashlib.sha256(repr((platform.machine(), _DIGEST, go.OLDEST)).encode()).hexdigest()[:12]
    folder = cache / f"oauth2-proxy-{VERSION}-{digest}"
    program = folder / "oauth2-proxy"
    cache.mkdir(parents=True, exist_ok=True)
    compiler = go.find(cache, report)
    with alone(folder.with_name(f"{folder.name}.lock")):
        if not program.exists():
            report(f"compiling oauth2-proxy {VERSION}, once")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            new = program.with_suffix(".new")
            go.compiled(compiler, go.source(compiler, _MODULE, _DIGEST, folder), ".", new)
            new.rename(program)
    return program
