"""`python3 -m sunk_nodeset_controller.certificates`: keeps a server's certificate for ever.

An API server that does not answer is asked again soon. Any other failure ends the program, and
Kubernetes starts it again, later each time, and shows that it does.
"""

import logging
import sys
from typing import Final

import anyio

from sunk_kube.client import connect
from sunk_nodeset_controller.certificates.config import settings
from sunk_nodeset_controller.certificates.keeping import Place, keep
from sunk_runtime import lifecycle
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError, TransientError

NAME: Final = "certificate"
AGAIN_S: Final = 5.0
log: Final = logging.getLogger(__name__)


async def start() -> None:
    """Look for ever."""
    found = settings(sys.argv[1:])
    place = Place(
        namespace=found.namespace,
        authority_secret=found.authority_secret,
        server_secret=found.server_secret,
    )
    async with connect(NAME, kubeconfig=found.kubeconfig) as client:
        while True:
            rest_s = found.look_s
            try:
                await keep(client, place, found.names, now())
            except (TransientError, ConflictError) as error:  # The next look finds what is to be done.
                log.warning("not looked at", extra={"error": str(error)})
                rest_s = min(AGAIN_S, rest_s)
            await anyio.sleep(rest_s)


def main() -> None:
    """Keep it, as a process of its own."""
    lifecycle.run(NAME, start)
