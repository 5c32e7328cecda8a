"""`python3 -m sunk_nodeset_controller.certificates`: keeps a server's certificate for ever.

What fails ends it. Kubernetes starts it again, later each time, and shows that it does.
"""

import sys
from typing import Final

import anyio

from sunk_kube.client import connect
from sunk_nodeset_controller.certificates.config import settings
from sunk_nodeset_controller.certificates.keeping import Place, keep
from sunk_runtime import lifecycle
from sunk_runtime.clock import now

NAME: Final = "certificate"


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
            await keep(client, place, found.names, now())
            await anyio.sleep(found.look_s)


def main() -> None:
    """Keep it, as a process of its own."""
    lifecycle.run(NAME, start)
