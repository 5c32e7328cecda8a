"""`python3 -m sunk_nodeset_controller.nats_certificate`: keeps NATS' certificate for ever.

What fails ends it. Kubernetes starts it again, later each time, and shows that it does.
"""

import logging
import sys

import anyio

from sunk_kube.client import connect
from sunk_nodeset_controller.nats_certificate.config import CertificateSettings, settings
from sunk_nodeset_controller.nats_certificate.keeping import Place, keep
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError
from sunk_runtime.logging import configure

log = logging.getLogger(__name__)
NAME = "nats-certificate"


async def run(found: CertificateSettings) -> None:
    """Look for ever."""
    place = Place(
        namespace=found.namespace,
        authority_secret=found.authority_secret,
        server_secret=found.server_secret,
    )
    async with connect(NAME, kubeconfig=found.kubeconfig) as client:
        while True:
            await keep(client, place, found.names, now())
            await anyio.sleep(found.look_s)


def main() -> int:
    """Keep it; return the exit status."""
    configure(NAME)
    status = 0
    try:
        anyio.run(run, settings(sys.argv[1:]))
    except* SunkError as failures:
        status = 1
        for failure in failures.exceptions:
            log.error("ended", extra={"error": str(failure)})  # noqa: TRY400 - a sentence, no trace
    return status
