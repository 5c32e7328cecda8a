"""Shows in metrics for how long the certificate of NATS lasts, whoever renews it.

What must stay true: a certificate that cannot be read is not taken for a good one. The last one that could be
read counts until its end; without any, both moments are 0, long past.
"""

import logging
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from cryptography import x509

from sunk_nodeset_controller.metrics import NATS_CERTIFICATE_END, NATS_CERTIFICATE_START

log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
"""How often the file is read; the kubelet needs about as long to bring what was renewed."""


async def show_lifetime(file: Path, *, look_s: float = LOOK_S) -> None:
    """Read *file* and show what it says, until cancelled."""
    name, last_error = str(file), ""
    start, end = NATS_CERTIFICATE_START.labels(name), NATS_CERTIFICATE_END.labels(name)
    while True:
        try:
            shown = x509.load_pem_x509_certificate(await anyio.to_thread.run_sync(file.read_bytes))
            start.set(shown.not_valid_before_utc.timestamp())
            end.set(shown.not_valid_after_utc.timestamp())
            last_error = ""
        except (OSError, ValueError) as error:
            if str(error) != last_error:
                last_error = str(error)
                log.warning("certificate of NATS not read", extra={"file": name, "error": last_error})
        await anyio.sleep(look_s)
