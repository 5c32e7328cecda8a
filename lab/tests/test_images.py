"""Docker archives, without an engine."""

import hashlib
import json
import os
import stat
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sunk_lab.images import ImageConfig, write_file_image, write_root_image

TINI = ImageConfig(entrypoint=("/usr/bin/tini", "--"), environment={"PATH": "/bin"}, ports=(80,))


def parts(archive: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return manifest, configuration and layer."""
    with tarfile.open(archive) as tar:
        content = {entry.name: reader.read() for entry in tar if (reader := tar.extractfile(entry))}
    (manifest,) = json.loads(content["manifest.json"])
    (layer,) = manifest["Layers"]
    return manifest, json.loads(content[manifest["Config"]]), content[layer]


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack the layer as an engine does."""
    (folder / "layer.tar").write_bytes(parts(archive)[2])
    with tarfile.open(folder / "layer.tar") as tar:
        tar.extractall(folder / "root", numeric_owner=True, filter="fully_trusted")  # noqa: S202 - we wrote it.
    return folder / "root"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program"
    file.write_bytes(b"\x7fELF")
    return file


def test_an_image_of_one_program_has_its_tag_and_the_digest_of_its_layer(
    tmp_path: Path, program: Path
) -> None:
    write_file_image(tmp_path / "a.tar", tag="localhost/one:1", files={"/usr/bin/one": program}, config=TINI)

    manifest, config, layer = parts(tmp_path / "a.tar")
    assert manifest["RepoTags"] == ["localhost/one:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"] == {
        "Entrypoint": ["/usr/bin/tini", "--"],
        "Cmd": None,
        "Env": ["PATH=/bin"],
        "ExposedPorts": {"80/tcp": {}},
    }
    copy = unpacked(tmp_path / "a.tar", tmp_path) / "usr/bin/one"
    assert copy.read_bytes() == program.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o755


def test_the_same_input_gives_the_same_bytes_whenever_it_is_packed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/hosts").write_text("")

    write_root_image(tmp_path / "a.tar", tag="localhost/x:1", root=root, config=TINI)
    os.utime(root / "etc/hosts", (1, 1))
    write_root_image(tmp_path / "b.tar", tag="localhost/x:1", root=root, config=TINI)

    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_a_folder_that_is_refused_is_left_out_with_all_that_is_in_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "secret/deep").mkdir(parents=True)
    (root / "secret/deep/key").write_text("")
    (root / "public").write_text("")

    write_root_image(
        tmp_path / "a.tar",
        tag="localhost/x:1",
        root=root,
        config=TINI,
        keep=lambda path: path != PurePosixPath("secret"),
    )

    (tmp_path / "out").mkdir()
    copy = unpacked(tmp_path / "a.tar", tmp_path / "out")
    assert [path.name for path in copy.iterdir()] == ["public"]


@pytest.mark.skipif(os.geteuid() != 0, reason="owners and devices need root")
def test_modes_owners_links_and_devices_of_a_root_survive(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/su").write_text("su")
    os.chown(root / "bin/su", 64030, 64100)
    (root / "bin/su").chmod(0o4750)
    (root / "bin/same").hardlink_to(root / "bin/su")
    (root / "sh").symlink_to("bin/su")
    os.mknod(root / "null", 0o020666, os.makedev(1, 3))

    write_root_image(tmp_path / "a.tar", tag="localhost/x:1", root=root, config=TINI)

    (tmp_path / "out").mkdir()
    copy = unpacked(tmp_path / "a.tar", tmp_path / "out")
    found = (copy / "bin/su").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o4750, 64030, 64100)
    assert (copy / "bin/same").stat().st_ino == found.st_ino
    assert (copy / "sh").readlink() == Path("bin/su")
    assert (copy / "null").stat().st_rdev == os.makedev(1, 3)
