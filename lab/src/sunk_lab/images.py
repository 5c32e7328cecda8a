"""Container images, written as docker archives without a container engine.

An archive holds one layer, its configuration and a manifest with the tag; ``docker load``, ``podman load``
and ``ctr images import`` read it. The same input gives the same bytes: times are zero, names are sorted,
owners are numbers. So an image that did not change is not imported again.

Source: Docker Image Specification v1.2, "Combined Image JSON + Filesystem Changeset Format".
"""

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}  # What Python calls it, what images call it.
_NO_TIME: Final = "1970-01-01T00:00:00Z"
_BLOCK: Final = 1 << 20

Keep = Callable[[PurePosixPath], bool]
"""Says of a path relative to the root whether it belongs into the image."""


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """How containers of an image start."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: Sequence[int] = ()
    """TCP ports that the image declares."""


def write_root_image(
    target: Path, *, tag: str, root: Path, config: ImageConfig, keep: Keep = lambda _path: True
) -> None:
    """Write the image *tag* of all below *root* that *keep* wants, with modes, owners, links and devices.

    Args:
        target: The archive; appears whole or not at all.
        tag: With a registry part and a version, such as ``localhost/slurm:24.11``. Without a version
            kubelets would try to pull it.
        root: Becomes ``/``.
        config: How containers start.
        keep: A folder that is refused is left out with all that is in it.
    """
    with tempfile.TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_tree(tar, root, PurePosixPath(), keep)
        _write_archive(target, tag=tag, layer=layer, config=config)


def write_file_image(target: Path, *, tag: str, files: Mapping[str, Path], config: ImageConfig) -> None:
    """Write the image *tag* of nothing but *files*, by their absolute path in the image; all executable."""
    with tempfile.TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            folders = {parent for name in files for parent in PurePosixPath(name).parents if parent.name}
            for folder in sorted(folders):
                entry = tarfile.TarInfo(str(folder).lstrip("/"))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for name in sorted(files):
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.size, entry.mode = files[name].stat().st_size, 0o755
                with files[name].open("rb") as content:
                    tar.addfile(entry, content)
        _write_archive(target, tag=tag, layer=layer, config=config)


def _add_tree(tar: tarfile.TarFile, root: Path, below: PurePosixPath, keep: Keep) -> None:
    for path in sorted((root / below).iterdir()):
        name = below / path.name
        if not keep(name) or path.is_socket():
            continue
        entry = tar.gettarinfo(
            path, arcname=str(name)
        )  # A second name of the same inode becomes a hard link.
        entry.mtime, entry.uname, entry.gname = 0, "", ""
        if entry.isreg():
            with path.open("rb") as content:
                tar.addfile(entry, content)
        else:
            tar.addfile(entry)
        if entry.isdir():
            _add_tree(tar, root, name, keep)


def _write_archive(target: Path, *, tag: str, layer: IO[bytes], config: ImageConfig) -> None:
    layer_digest = _digest(layer)
    described = json.dumps(_image_config(layer_digest, config), sort_keys=True).encode()
    config_digest = hashlib.sha256(described).hexdigest()
    manifest = [{"Config": f"{config_digest}.json", "RepoTags": [tag], "Layers": [f"{layer_digest}.tar"]}]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as new:
        with tarfile.open(fileobj=new, mode="w") as tar:
            _add_stream(tar, f"{layer_digest}.tar", layer)
            _add_stream(tar, f"{config_digest}.json", io.BytesIO(described))
            _add_stream(tar, "manifest.json", io.BytesIO(json.dumps(manifest).encode()))
        Path(new.name).chmod(0o644)
        Path(new.name).replace(target)


def _image_config(layer_digest: str, config: ImageConfig) -> dict[str, object]:
    return {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": _NO_TIME,
        "config": {
            "Entrypoint": list(config.entrypoint) or None,
            "Cmd": list(config.command) or None,
            "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
            "ExposedPorts": {f"{port}/tcp": {} for port in config.ports},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created": _NO_TIME, "created_by": "sunk-lab"}],
    }


def _digest(content: IO[bytes]) -> str:
    content.seek(0)
    digest = hashlib.sha256()
    while block := content.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _add_stream(tar: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = content.seek(0, io.SEEK_END), 0o644
    content.seek(0)
    tar.addfile(entry, content)
