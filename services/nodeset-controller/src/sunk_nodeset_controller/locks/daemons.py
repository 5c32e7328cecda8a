"""A check at the start: which DaemonSets would lose their Pods on every Node that is locked.

Kubernetes deletes such a Pod again and again: with ``NoExecute`` its controller ends what its *template*
does not tolerate. Nobody is asked about it, so it is said before it hurts.
"""

import logging
from collections.abc import Iterable
from typing import Final

import anyio

from sunk_kube.client import KubeClient
from sunk_kube.objects import KubeObject, KubeStruct, ObjectMeta, OwnerReference, Pod, PodSpec
from sunk_kube.resources import Resource
from sunk_nodeset_controller.locks.metrics import DAEMONS_DRIVEN
from sunk_nodeset_controller.locks.workloads import Measure
from sunk_runtime.errors import PermanentError, SunkError

log = logging.getLogger(__name__)

AGAIN_S: Final = 30.0


class PodTemplate(KubeStruct, frozen=True):
    """What a DaemonSet makes its Pods from."""

    spec: PodSpec = PodSpec()


class DaemonSetSpec(KubeStruct, frozen=True):
    """What is wanted of a DaemonSet."""

    template: PodTemplate = PodTemplate()


class DaemonSet(KubeObject, frozen=True):
    """A Pod on each Node."""

    spec: DaemonSetSpec = DaemonSetSpec()


DAEMONSETS: Final = Resource(group="apps", kind="DaemonSet", plural="daemonsets", struct=DaemonSet)


def driven_out(daemons: Iterable[DaemonSet], measure: Measure) -> list[str]:
    """Return those of *daemons* whose Pods a lock drives out, as ``namespace/name``, sorted."""
    return sorted(one.key for one in daemons if measure.is_driven_out(_pod(one)))


def _pod(daemon: DaemonSet) -> Pod:
    owner = OwnerReference(kind="DaemonSet", name=daemon.metadata.name, controller=True)
    meta = ObjectMeta(namespace=daemon.metadata.namespace, owner_references=(owner,))
    return Pod(metadata=meta, spec=daemon.spec.template.spec)


async def warn_of_daemons(kube: KubeClient, measure: Measure, cluster: str) -> None:
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
