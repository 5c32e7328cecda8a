"""Labs for tests: numbers 1 to 9, each held by one test run, so that lab 0 is left to people."""

import contextlib
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from sunk_lab.config import NUMBERS, LabConfig, from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import KubeLab, check_machine
from sunk_lab.locks import alone_or_not
from sunk_lab.stack.stack import Stack

_MARK = "for-tests"


@contextlib.contextmanager
def reserved_lab() -> Generator[KubeLab]:
    """Hold a lab that nobody else uses; it is down at the beginning and at the end.

    Skips where the machine cannot run one; fails where the programs are not built yet, which takes longer
    than a test may.
    """
    with reserved() as config:
        lab = KubeLab(config.number, folder=config.folder / "kube", cache=config.cache, report=_silent)
        if not lab.is_built():
            pytest.fail("the lab's programs are not built: run ./task lab:prepare")
        try:
            yield lab
        finally:
            lab.down()


@contextlib.contextmanager
def reserved_stack(*, is_audited: bool = False, is_encrypted: bool = False) -> Generator[Stack]:
    """Bring a whole stack up and take it down at the end; skips where the machine cannot run one.

    *is_audited*: as in `KubeLab.up`. *is_encrypted*: as in `Stack`.
    """
    with reserved() as config:
        stack = Stack(config, report=_silent, is_encrypted=is_encrypted)
        try:
            stack.up(is_audited=is_audited)
            yield stack
        finally:
            stack.down()


@contextlib.contextmanager
def reserved() -> Generator[LabConfig]:
    """Hold a number of which nothing runs, or skip where the machine cannot run a lab."""
    found = from_environment()
    try:
        check_machine()
    except LabError as error:
        pytest.skip(str(error))
    with reserved_number(found.cache) as number:
        config = replace(found, number=number, kubeconfig=None)
        # What a killed test run left under this number: a Kubernetes alone, or all that runs beside one.
        Stack(config, report=_silent).down()
        yield config


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


def _silent(_: str) -> None:
    """Say nothing: pytest shows what a test is about."""
