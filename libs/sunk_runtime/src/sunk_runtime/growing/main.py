"""`python3 -m sunk_runtime.growing`: copies all streams of one NATS server to three, and verifies that.

helm/sunk runs it while its bus grows (ADR 0032); neither side has other clients then. It ends with 0 only
when each stream is on all three servers as it is on the one. Interrupted anywhere, it is run again.
"""

import logging
import sys

import anyio

from sunk_runtime.errors import JetStreamRejectedError, SunkError, TransientError
from sunk_runtime.growing.config import GrowSettings, settings
from sunk_runtime.growing.copying import AGAIN_S, LATER, grow
from sunk_runtime.jetstream import connect
from sunk_runtime.logging import configure

log = logging.getLogger(__name__)


async def run(found: GrowSettings) -> None:
    """Copy, however often it breaks off.

    Raises:
        PermanentError: no retry can help.
        TransientError: the time is over.
    """
    with anyio.move_on_after(found.within_s) as patience:
        await _until_done(found)
    if patience.cancelled_caught:
        raise TransientError(
            f"not done within {found.within_s:g} s: the log shows what it waits for; run it again"
        )


async def _until_done(found: GrowSettings) -> None:
    one, three = found.bus(found.source), found.bus(found.target)
    async with connect(one, "sunk-grow") as source, connect(three, "sunk-grow") as target:
        while True:
            try:
                streams = await grow(source, target, volume_mib=found.volume_mib)
            except JetStreamRejectedError as error:
                if error.err_code not in LATER:
                    raise
                log.warning("not yet", extra={"error": str(error)})
            except TransientError as error:
                log.warning("not yet", extra={"error": str(error)})
            else:
                log.info("the three servers have every stream", extra={"streams": streams})
                return
            await anyio.sleep(AGAIN_S)


def main() -> int:
    """Copy; return the exit status."""
    configure("grow")
    status = 0
    try:
        anyio.run(run, settings(sys.argv[1:]))
    except* SunkError as failures:
        status = 1
        for failure in failures.exceptions:
            log.error("not done", extra={"error": str(failure)})  # noqa: TRY400 - a sentence, no trace
    return status
