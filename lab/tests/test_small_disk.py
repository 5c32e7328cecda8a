"""A real mount that is full, and no longer is."""

import errno
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_lab.errors import LabError
from sunk_lab.small_disk import SmallDisk, small_disk

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Generator[SmallDisk]:
    with small_disk(tmp_path / "disk", mib=4) as disk:
        yield disk


@needs_root
@pytest.mark.lab
def test_a_full_disk_takes_nothing_until_it_is_cleared(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space") as refused:
        (disk.folder / "more").write_bytes(b"more")
    assert refused.value.errno == errno.ENOSPC

    disk.clear()

    (disk.folder / "more").write_bytes(b"more")


@needs_root
@pytest.mark.lab
def test_the_disk_is_gone_afterwards(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mib=4) as disk:
        (disk.folder / "file").write_bytes(b"gone soon")

    assert list((tmp_path / "disk").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may mount")
def test_who_may_not_mount_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="needs root"), small_disk(tmp_path / "disk", mib=4):
        pass
