"""A whole stack for tests, on a lab that nobody else uses."""

import contextlib
from collections.abc import Generator
from dataclasses import replace

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import check_machine
from sunk_lab.kube.testing import reserved_number
from sunk_lab.stack.stack import Stack


@contextlib.contextmanager
def reserved_stack() -> Generator[Stack]:
    """Bring a stack up and take it down at the end; skips where the machine cannot run one."""
    config = from_environment()
    try:
        check_machine()
    except LabError as error:
        pytest.skip(str(error))
    with reserved_number(config.cache) as number:
        stack = Stack(replace(config, number=number, kubeconfig=None), say=lambda _: None)
        stack.down()  # What a killed test run left.
        try:
            stack.up()
            yield stack
        finally:
            stack.down()
