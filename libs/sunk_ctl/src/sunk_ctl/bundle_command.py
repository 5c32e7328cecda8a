"""`sunkctl support-bundle`: what support needs to see, in one file, with secrets redacted."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

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
            "--namespace",
            "-n",
            help="Namespace of a release (repeatable); default: every namespace with a release",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="The file to write; default: a name with the time, in this folder"),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=1, help="Seconds after which the bundle is written with what was collected"
        ),
    ] = 300,
    context: Context = "",
    kubeconfig: Config = None,
) -> None:
    """Write states, logs, settings and versions into one file, secrets redacted. Needs the right to read."""

    async def get(cluster: Cluster) -> Bundle:
        return await collected(cluster, namespace or (), timeout)

    moment = now()
    path = file or Path(f"{bundle.name_at(moment)}.tar.gz")
    try:
        with _new_file(path) as written:
            found = answered(context, kubeconfig, get)
            written.write(found.packed(moment))
    except OSError as error:
        end(f"--file: {error}", 1)
    for missing in found.left_out:
        warn(f"left out: {missing}")
    typer.echo(f"{path}: {len(found.files)} files. Read its README.txt before you send it")


@contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    """Yield a file that only the user may read, and that is at *path* once it is whole.

    Raises:
        OSError: There is one already, or it cannot be written.
    """
    if os.path.lexists(path):
        raise FileExistsError(f"{path} already exists")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
            yield written
        try:
            os.link(part, path)  # Unlike a renaming, it replaces nothing.
        except PermissionError:  # A file system without links.
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
                copy.write(part.read_bytes())
    finally:
        part.unlink(missing_ok=True)
