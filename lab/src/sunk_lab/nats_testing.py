"""A NATS for tests: an existing one, one in a container engine or, as a rule, a process of its own."""

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_lab.config import from_environment
from sunk_lab.nats import Nats
from sunk_lab.which_nats import nats_of


@pytest.fixture
def nats_server() -> Generator[Nats]:
    """A running NATS with an empty store, for one test; only an existing one is shared and not empty."""
    with tempfile.TemporaryDirectory(prefix="sunk-nats-") as folder:
        server = nats_of(from_environment(), Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
