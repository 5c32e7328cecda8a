"""A NATS for tests: an existing one, one in a container engine or, as a rule, a process of its own."""

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_lab.config import LabConfig, from_environment
from sunk_lab.nats import ExistingNats, Nats, NatsServer


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


def nats_of(config: LabConfig, folder: Path) -> Nats:
    """Return the NATS that the settings ask for; what it needs on disk is in *folder*."""
    if config.nats_url:
        return ExistingNats(config.nats_url)
    if config.is_nats_in_engine:
        # testcontainers takes half a second to import, and most runs never need it.
        from sunk_lab.engine import EngineNats  # noqa: PLC0415

        return EngineNats(folder, cache=config.cache, say=lambda _line: None)
    return NatsServer(folder)
