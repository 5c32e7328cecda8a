"""The whole stack, once for all stories: real NATS, Kubernetes and Slurm, each service a process."""

from collections.abc import Generator

import pytest

from sunk_lab.reserved import reserved_stack
from sunk_lab.stack.stack import Stack
from sunk_lab.story.stage import Stage


@pytest.fixture(scope="session")
def stack() -> Generator[Stack]:
    with reserved_stack() as stack:
        yield stack


@pytest.fixture
def stage(stack: Stack) -> Stage:
    stack.services.start_all()  # What an earlier test has killed.
    return Stage(stack)
