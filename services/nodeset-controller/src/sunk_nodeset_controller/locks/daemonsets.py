"""DaemonSets, and which of them would lose their Pods on every Node that is locked. Pure."""

from collections.abc import Iterable
from typing import Final

from sunk_kube.objects import KubeObject, KubeStruct, ObjectMeta
from sunk_kube.pods import Pod, PodSpec
from sunk_kube.resources import Resource
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy


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


def driven_out(daemons: Iterable[DaemonSet], measure: EvictionPolicy) -> list[str]:
    """Return those of *daemons* whose Pods a lock drives out, as ``namespace/name``, sorted."""
    return sorted(one.key for one in daemons if measure.is_driven_out(_pod(one), is_daemon=True))


def _pod(daemon: DaemonSet) -> Pod:
    return Pod(metadata=ObjectMeta(namespace=daemon.metadata.namespace), spec=daemon.spec.template.spec)
