"""Labs for tests: numbers 1 to 9, each held by one test run, so that lab 0 is left to people."""

import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_lab.config import NUMBERS, from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube import cgroups
from sunk_lab.kube.lab import KubeLab, check_machine
from sunk_lab.locks import alone_or_not
from sunk_lab.processes import run

_MARK = "for-tests"


@pytest.fixture(scope="session")
def kube_lab() -> Generator[KubeLab]:
    """A running lab of three nodes for the whole test run."""
    with reserved_lab() as lab:
        lab.up(nodes=3)
        yield lab


@pytest.fixture
def own_kube_lab() -> Generator[KubeLab]:
    """A lab that is down, for one test to do with as it likes."""
    with reserved_lab() as lab:
        yield lab


@contextlib.contextmanager
def reserved_lab() -> Generator[KubeLab]:
    """Hold a lab that nobody else uses; it is down at the beginning and at the end.

    Skips where the machine cannot run one; fails where the programs are not built yet, which takes longer
    than a test may.
    """
    config = from_environment()
    try:
        check_machine()
    except LabError as error:
        pytest.skip(str(error))
    with reserved_number(config.cache) as number:
        folder = config.cache / "labs" / str(number) / "kube"
        lab = KubeLab(number, folder=folder, cache=config.cache, say=lambda _: None)
        if not lab.is_built():
            pytest.fail("the lab's programs are not built: run ./task lab:prepare")
        lab.down()  # What a killed test run left.
        try:
            yield lab
        finally:
            lab.down()


@contextlib.contextmanager
def reserved_number(cache: Path) -> Generator[int]:
    """Hold a lab's number; one whose lab was brought up by hand is never taken."""
    labs = cache / "labs"
    with contextlib.ExitStack() as stack:
        for number in NUMBERS[1:]:
            folder = labs / str(number)
            is_held = stack.enter_context(alone_or_not(labs / f"{number}.{_MARK}"))
            is_free = not folder.exists() or not any(folder.iterdir()) or (folder / _MARK).exists()
            if is_held and is_free:
                folder.mkdir(exist_ok=True)
                (folder / _MARK).touch()
                yield number
                (folder / _MARK).unlink()
                folder.rmdir()
                (labs / f"{number}.{_MARK}").unlink()
                return
            stack.close()
        pytest.skip("labs 1 to 9 are all in use")


def remains(lab: KubeLab) -> list[str]:
    """Return what is there of a lab: processes, mounts, links, routes, cgroups, its folder."""
    folder, net = str(lab.logs.parent), lab.network
    found = [f"process {pid.name}" for pid in Path("/proc").glob("[0-9]*") if _mentions(pid, folder)]
    found += [
        f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder in line
    ]
    found += [f"link {path.name}" for path in Path("/sys/class/net").glob(f"{net.bridge}*")]
    routes = run("ip", "route", "show", "table", "all").splitlines()
    found += [f"route {line}" for line in routes if f"{net.prefix}." in line]
    found += [f"cgroup {name}" for name in cgroups.names(net.bridge)]
    return found + [folder] * Path(folder).exists()


def _mentions(process: Path, folder: str) -> bool:
    # A node's processes have its folder among their mounts, all others name it.
    try:
        if not (process / "cmdline").read_bytes():
            return False  # A kernel thread, or a dead process that its parent has not looked at yet.
        return any(folder.encode() in (process / file).read_bytes() for file in ("cmdline", "mountinfo"))
    except OSError:
        return False
