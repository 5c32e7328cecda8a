import os
from pathlib import Path

import pytest

from sunk_lab.debian import remove_unfinished
from sunk_lab.processes import run


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_root_that_a_killed_build_has_left_is_removed_with_its_mounts_and_nothing_else(
    tmp_path: Path,
) -> None:
    root, other = tmp_path / ".root.new", tmp_path / ".root.new2"
    for folder in (root / "proc", root / "a b", other):
        folder.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "tmpfs", folder)
    run("mount", "-t", "proc", "proc", root / "proc")
    (other / "kept").touch()
    try:
        remove_unfinished(root)
        remove_unfinished(root)

        assert not root.exists()
        assert (other / "kept").exists()
    finally:
        run("umount", other)
