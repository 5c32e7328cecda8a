"""A check at the start: which DaemonSets would lose their Pods on every Node that is locked.

Kubernetes deletes such a Pod again and again: with ``NoExecute`` its controller ends what its *template*
does not tolerate. Nobody is asked about it, so it is said before it hurts.
"""

import logging
from typing import Final

import anyio

from sunk_kube.client import KubeClient
from sunk_nodeset_controller.locks.daemonsets import DAEMONSETS, driven_out
from sunk_nodeset_controller.locks.metrics import DAEMONS_DRIVEN
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_runtime.errors import PermanentError, SunkError

log = logging.getLogger(__name__)

AGAIN_S: Final = 30.0


async def warn_of_daemons(kube: KubeClient, measure: EvictionPolicy, cluster: str) -> None:
    """Say which DaemonSets do not tolerate the lock; that they cannot be listed is said too."""
    while True:
        try:
            found = driven_out(await kube.list_all(DAEMONSETS), measure)
        except PermanentError as error:  # We may not list them: locks work without.
            log.warning("daemons not checked", extra={"cluster": cluster, "error": str(error)})
            return
        except SunkError as error:
            log.info("daemons not checked yet", extra={"cluster": cluster, "error": str(error)})
            await anyio.sleep(AGAIN_S)
        else:
            break
    DAEMONS_DRIVEN.labels(cluster).set(len(found))
    if found:
        fields = {"cluster": cluster, "daemonsets": found, "taint": measure.taint.key}
        log.warning("daemons do not tolerate the lock: each lock ends their Pods", extra=fields)
