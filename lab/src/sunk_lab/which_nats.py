"""Which NATS the settings ask for: an existing one, one in a container engine, or a process of our own."""

from pathlib import Path

from sunk_lab.config import LabConfig
from sunk_lab.nats import ExistingNats, Nats, NatsServer
from sunk_lab.processes import Processes


def nats_of(config: LabConfig, folder: Path, processes: Processes | None = None, *, extra: str = "") -> Nats:
    """Return the NATS that the settings ask for; what it needs on disk is in *folder*.

    *extra* is more of the configuration for a process of our own.
    """
    if config.nats_url:
        return ExistingNats(config.nats_url)
    if config.is_nats_in_engine:
        # testcontainers takes half a second to import, and most runs never need it.
        from sunk_lab.engine import EngineNats  # noqa: PLC0415

        return EngineNats(folder, cache=config.cache, report=lambda _line: None)
    return NatsServer(folder, processes, extra=extra)
