"""Facts and state of NodeSet Pods and their Nodes. Owner: nodeset-controller."""

from typing import Literal

import msgspec

from sunk_events.base import Event, Moment, NodeName, Reason, State


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a NodeSet Pod says of it."""

    pod: NodeName
    """Also its Slurm node's name."""
    namespace: str
    kube_node: str
    uid: str = ""
    reason: Reason = ""


class PodReady(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.pod_ready"):
    """A NodeSet Pod is Ready: its slurmd answers."""

    data: PodSnapshot


class PodNotReady(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.pod_not_ready"):
    """A NodeSet Pod was Ready, or is new, and is not Ready."""

    data: PodSnapshot


class PodTerminating(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.pod_terminating"):
    """A NodeSet Pod has a deletion timestamp."""

    data: PodSnapshot


class PodGone(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.pod_gone"):
    """The object of a NodeSet Pod is gone, and with it its slurmd."""

    data: PodSnapshot


class NodeCordonSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a cordon says of the Node."""

    kube_node: str
    pod: NodeName
    reason: Reason = ""


class NodeCordoned(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.node_cordoned"):
    """The Node of a NodeSet Pod is unschedulable."""

    data: NodeCordonSnapshot


class NodeUncordoned(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.node_uncordoned"):
    """The Node of a NodeSet Pod is schedulable again."""

    data: NodeCordonSnapshot


class KubePodState(State, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.kube_pod"):
    """One NodeSet Pod and its Node. Key: the Pod's name, which is the Slurm node's.

    It stays, with phase ``gone``, while its NodeSet still has the Node; only then is the key deleted.
    """

    pod: NodeName
    namespace: str
    nodeset: str
    kube_node: str
    uid: str = ""
    phase: Literal["waiting", "running", "terminating", "gone"]
    """``waiting``: not started yet; ``terminating``: has a deletion timestamp; ``gone``: no such object."""
    is_ready: bool = False
    is_condemned: bool = False
    """Chosen to go by an update or a scale-down; nothing is deleted yet."""
    is_cordoned: bool = False
    cordon_reason: Reason = ""
    features: tuple[str, ...] = ()
    hpc_verified: Moment | None = None
    """Last pass of the Node's ``HPCVerification`` condition."""
    pod_address: str = ""
