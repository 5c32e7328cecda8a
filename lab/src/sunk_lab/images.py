"""Container images, written as docker archives without a container engine.

An archive holds layers, a configuration for each image and a manifest with the tags; ``docker load``,
``podman load`` and ``ctr images import`` read it. The same input gives the same bytes: times are zero, names
are sorted, owners are numbers. So an image that did not change is not imported again, and a layer that
several images have is stored once.

Only Debian's Python sources keep the time that their package gave them: what is compiled of them names it,
and where it is another, each process compiles them anew.

Source: Docker Image Specification v1.2, "Combined Image JSON + Filesystem Changeset Format".
"""

import contextlib
import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}  # What Python calls it, what images call it.
_NO_TIME: Final = "1970-01-01T00:00:00Z"
_BLOCK: Final = 1 << 20
_ROOT: Final = PurePosixPath()

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
    user: str = ""
    """Who runs it, as ``uid:gid``; empty: root."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A layer: all below the folder *root* that *keep* wants."""

    root: Path
    at: PurePosixPath = _ROOT
    """Where it is in the image, relative to ``/``."""
    is_roots: bool = False
    """Everything belongs to root, whoever made it here."""
    is_unprivileged: bool = False
    """No program runs as another user than its caller: setuid and setgid bits are taken off."""
    keep: Keep = lambda _path: True


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image of an archive."""

    tag: str
    """With a registry part and a version. Without a version kubelets would try to pull it."""
    layers: Sequence[Tree]
    """From the lowest up."""
    config: ImageConfig


def write_images(target: Path, images: Sequence[Image]) -> None:
    """Write *images* into one archive, which appears whole or not at all."""
    with contextlib.ExitStack() as stack:
        layers: dict[str, IO[bytes]] = {}
        digests: dict[int, str] = {}  # Of each tree, so that a tree that several images have is read once.
        for tree in (tree for image in images for tree in image.layers):
            if id(tree) not in digests:
                layer = stack.enter_context(tempfile.TemporaryFile())
                with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
                    _add_tree_layer(tar, tree)
                digests[id(tree)] = _digest(layer)
                layers[digests[id(tree)]] = layer
        made = [(image, [digests[id(tree)] for tree in image.layers]) for image in images]
        _write_archive(target, made, layers)


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
    write_images(target, [Image(tag=tag, layers=[Tree(root=root, keep=keep)], config=config)])


def write_file_image(target: Path, *, tag: str, files: Mapping[str, Path], config: ImageConfig) -> None:
    """Write the image *tag* of nothing but *files*, by their absolute path in the image; all executable."""
    with tempfile.TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_folders(tar, (PurePosixPath(name.lstrip("/")).parent for name in files))
            for name in sorted(files):
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.size, entry.mode = files[name].stat().st_size, 0o755
                with files[name].open("rb") as content:
                    tar.addfile(entry, content)
        digest = _digest(layer)
        _write_archive(target, [(Image(tag=tag, layers=(), config=config), [digest])], {digest: layer})


def _add_tree_layer(tar: tarfile.TarFile, tree: Tree) -> None:
    _add_folders(tar, [tree.at])
    _add_tree(tar, tree, PurePosixPath())


def _add_folders(tar: tarfile.TarFile, wanted: Iterable[PurePosixPath]) -> None:
    """Add the folders *wanted* with all above them."""
    folders = {folder for path in wanted for folder in (path, *path.parents) if folder.name}
    for folder in sorted(folders):
        entry = tarfile.TarInfo(str(folder))
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)


def _add_tree(tar: tarfile.TarFile, tree: Tree, below: PurePosixPath) -> None:
    for path in sorted((tree.root / below).iterdir()):
        name = below / path.name
        if not tree.keep(name) or path.is_socket():
            continue
        entry = tar.gettarinfo(
            path, arcname=str(tree.at / name)
        )  # A second name of the same inode becomes a hard link.
        is_compiled_by_time = path.suffix == ".py" and not tree.is_roots
        entry.mtime = int(entry.mtime) if is_compiled_by_time else 0
        entry.uname, entry.gname = "", ""
        if tree.is_roots:
            entry.uid, entry.gid = 0, 0
        if entry.isreg():
            if tree.is_unprivileged:
                entry.mode &= 0o1777
            with path.open("rb") as content:
                tar.addfile(entry, content)
        else:
            tar.addfile(entry)
        if entry.isdir():
            _add_tree(tar, tree, name)


def _write_archive(
    target: Path, images: Sequence[tuple[Image, Sequence[str]]], layers: Mapping[str, IO[bytes]]
) -> None:
    """Write *images*, each with the digests of its layers, and the *layers* by digest."""
    configs: dict[str, bytes] = {}
    manifest: list[dict[str, object]] = []
    for image, digests in images:
        described = json.dumps(_image_config(digests, image.config), sort_keys=True).encode()
        name = f"{hashlib.sha256(described).hexdigest()}.json"
        configs[name] = described
        files = [f"{digest}.tar" for digest in digests]
        manifest.append({"Config": name, "RepoTags": [image.tag], "Layers": files})
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as new:
        with tarfile.open(fileobj=new, mode="w") as tar:
            for digest, layer in layers.items():
                _add_stream(tar, f"{digest}.tar", layer)
            for name, described in configs.items():
                _add_stream(tar, name, io.BytesIO(described))
            _add_stream(tar, "manifest.json", io.BytesIO(json.dumps(manifest).encode()))
        Path(new.name).chmod(0o644)
        Path(new.name).replace(target)


def _image_config(digests: Sequence[str], config: ImageConfig) -> dict[str, object]:
    options = {"User": config.user, "Labels": dict(config.labels)}
    return {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": _NO_TIME,
        "config": {
            "Entrypoint": list(config.entrypoint) or None,
            "Cmd": list(config.command) or None,
            "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
            "ExposedPorts": {f"{port}/tcp": {} for port in config.ports},
            **{name: value for name, value in options.items() if value},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": _NO_TIME, "created_by": "sunk-lab"} for _ in digests],
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
