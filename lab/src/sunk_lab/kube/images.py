"""Images come as archives: no registry, nothing is pulled."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Final

PAUSE: Final = "localhost/sunk-pause:1"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def pause_archive(program: bytes) -> bytes:
    """Return a docker archive of one static program: the sandbox of Pods, a workload that ends at SIGTERM."""
    layer = _tar({"pause": program}, mode=0o755)
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": ["/pause"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    )
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}])
    return _tar({"config.json": config.encode(), "layer.tar": layer, "manifest.json": manifest.encode()})


def mark(archive: Path) -> str:
    """Return what tells this archive, as it is now, from every other."""
    found = archive.stat()
    text = f"{archive.resolve()}\0{found.st_size}\0{found.st_mtime_ns}\0{found.st_ino}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _tar(content_by_name: dict[str, bytes], mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in content_by_name.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()
