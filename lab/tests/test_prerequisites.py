import fcntl
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import missing, update
from sunk_lab.processes import run

needs_apt = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed")


def test_a_package_is_missing_only_if_none_of_its_files_is_there(tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin/ip").touch()

    assert missing({"usr/sbin/ip|sbin/ip": "iproute2", "usr/bin/gcc": "gcc"}, tmp_path) == ["gcc"]


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give apt a folder of lists of its own, and no archive to read."""
    folder = tmp_path / "lists"
    (folder / "partial").mkdir(parents=True)
    (tmp_path / "sources.list").touch()
    settings = {"State::lists": folder, "Etc::sourcelist": tmp_path / "sources.list", "Etc::sourceparts": "-"}
    (tmp_path / "apt.conf").write_text(
        "".join(f'Dir::{name} "{value}";\n' for name, value in settings.items())
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    return folder


@contextmanager
def held(lists: Path) -> Generator[None]:
    """Hold apt's lock of its lists, as another apt-get does."""
    with (lists / "lock").open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@needs_apt
def test_the_lists_of_packages_are_read_once_another_apt_has_read_them(lists: Path) -> None:
    with held(lists):
        with pytest.raises(LabError, match="Could not get lock"):  # apt itself does not wait.
            run("apt-get", "update", "-o", "DPkg::Lock::Timeout=20", env={"LC_ALL": "C"})
        waits = threading.Thread(target=update)
        waits.start()
        waits.join(2.0)
        assert waits.is_alive()
    waits.join(60.0)
    assert not waits.is_alive()


@needs_apt
def test_an_apt_that_does_not_end_is_named(lists: Path) -> None:
    with (
        held(lists),
        pytest.raises(LabError, match=r"Could not get lock .*/lists/lock\. It is held by process \d+"),
    ):
        update(wait_s=1.0)
