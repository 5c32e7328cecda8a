"""`python3 -m sunk_runtime.mirroring`: keeps the mirrors on the NATS server of other teams.

helm/sunk runs it next to that server (ADR 0034). The servers carry the messages; it only makes the mirrors,
and makes one again whose stream our NATS has lost. While it is away, what is mirrored stays so.
"""

import logging
import sys

import anyio

from sunk_runtime import lifecycle
from sunk_runtime.jetstream import connect
from sunk_runtime.mirroring.config import MirrorSettings, settings
from sunk_runtime.mirroring.keeping import keep_all, wanted

log = logging.getLogger(__name__)


async def run(found: MirrorSettings) -> None:
    """Keep them for ever."""
    limits = {"facts_max_bytes": found.facts_max_bytes, "facts_max_age_s": found.facts_max_age_s}
    streams = [stream for cluster in found.clusters for stream in wanted(cluster, **limits)]
    async with connect(found.bus, "sunk-mirror") as bus:
        while True:
            await keep_all(bus, streams)
            await anyio.sleep(found.look_s)


async def _with_settings() -> None:
    await run(settings(sys.argv[1:]))


def main() -> None:
    """Keep them, as a process of its own."""
    lifecycle.run("mirror", _with_settings)
