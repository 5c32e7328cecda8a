"""Facts and state of NodeSet Pods and their Nodes. Owner: nodeset-controller."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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


class PodCondemned(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.pod_condemned"):
    """A NodeSet Pod is to go: an update or scale-down chose it, or its Node was deleted. It is there yet."""

    data: PodSnapshot


class PodSpared(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.pod_spared"):
    """A NodeSet Pod that was condemned may stay: the plan changed, or its Node is back."""

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


class NodeVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a pass of HPC verification says of the Node."""

    kube_node: str
    pod: NodeName
    verified: Moment


class NodeVerified(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.node_verified"):
    """The Node of a NodeSet Pod passed ``HPCVerification``, newer than the pass known before."""

    data: NodeVerification


class NodeReboot(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a reboot says of it."""

    kube_node: str
    pod: NodeName
    who: str
    """Who called the hook."""
    reason: Reason = ""
    """The reason that the Node's condition now carries."""


class NodeRebootRequested(
    Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.node_reboot_requested"
):
    """A hook asked for a reboot, and the Node's condition now requests it from the platform."""

    data: NodeReboot


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a Pod or Node, in Kubernetes' words."""

    type: str
    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: Reason = ""
    message: Reason = ""
    changed: Moment | None = None
    """Its ``lastTransitionTime``."""


Conditions = Annotated[tuple[Condition, ...], Meta(max_length=32)]
"""At most 32, sorted by type."""


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
    gone_uid: str = ""
    """The Pod of this name that went before, while this one is ``waiting``; one that is ``gone`` itself has
    its own in `uid`. A consumer that missed the one still sees here that its slurmd is no more."""
    is_ready: bool = False
    is_condemned: bool = False
    """Chosen to go by an update or a scale-down, or its Node was deleted; the Pod is there yet."""
    is_cordoned: bool = False
    cordon_reason: Reason = ""
    features: tuple[str, ...] = ()
    hpc_verified: Moment | None = None
    """Last pass of ``HPCVerification``, a condition of the Node or of the Pod: the newer one counts."""
    pod_address: str = ""
    ready_changed: Moment | None = None
    """Since when `is_ready` is as it is."""
    is_nodeset_deleted: bool = False
    """Its NodeSet has a deletion timestamp: it goes as soon as it is drained and idle."""
    conditions: Conditions = ()
    """The Pod's, those that others should see in Slurm."""
    node_conditions: Conditions = ()
    """The Node's, likewise."""
    topology: Reason = ""
    """The node's place in the topologies of Slurm, as in ``scontrol update nodename=... topology=...``, made
    of the Node's labels; empty: its place is not ours to say."""


class KubeWatchState(State, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.kube_watch"):
    """A nodeset-controller leads and sees Kubernetes. Key: ``leader``; written every 10 s.

    A Pod's state is written when it changes only: without this, silence would look like calm.
    """

    seen: Moment
    """When that was so."""


class NodeSliceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A Node that belongs to a NodeSet."""

    node: NodeName
    """Its name in Slurm, which is its Pod's: chosen once, kept while the Node exists."""
    kube_node: str


class NodeSliceState(State, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.node_slice"):
    """Part of the Nodes behind a NodeSet. Key: ``namespace/name`` of the NodeSlice.

    A Slurm node that is in no slice any more has lost its Node. Only a service that has read all can say
    that.
    """

    namespace: str
    name: str
    nodeset: str
    entries: Annotated[tuple[NodeSliceEntry, ...], Meta(max_length=100)] = ()
    """Sorted by node."""
