"""`sunkctl support-bundle`: what support needs to see, in one file, without secrets."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sunk_ctl import bundle
from sunk_ctl.bundle import Bundle
from sunk_ctl.cluster import Cluster
from sunk_ctl.collecting import collected
from sunk_ctl.running import Config, Context, answered, end, warn
from sunk_runtime.clock import now


def support_bundle(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace", "-n", help="Namespace of a release; again for each. Default: all of them"
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Where to write it; default: a name with the time, here"),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds after which the rest is left out")
    ] = 300,
    context: Context = "",
    kubeconfig: Config = None,
) -> None:
    """Write states, logs, settings and versions into one file, without secrets. Needs the right to read."""

    async def get(cluster: Cluster) -> Bundle:
        return await collected(cluster, namespace or (), timeout)

    moment = now()
    path = file or Path(f"{bundle.name_at(moment)}.tar.gz")
    found = answered(context, kubeconfig, get)
    for missing in found.left_out:
        warn(f"left out: {missing}")
    try:
        _write(path, found.packed(moment))
    except OSError as error:
        end(f"--file: {error}", 1)
    typer.echo(
        f"{path}: {len(found.files)} files. Secrets are redacted as README.txt in it says; read it first"
    )


def _write(path: Path, data: bytes) -> None:
    """Write a new file that only the user may read. Raises `OSError`, also if there is one already."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(data)
