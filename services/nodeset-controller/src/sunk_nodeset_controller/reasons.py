"""What the nodeset-controller says on NodeSets, their Pods and Nodes: see `sunk_kube.reasons`."""

from typing import Final

from sunk_kube.reasons import Reason

_NODESET: Final = "NodeSet"
_NODE: Final = "Node"
_USER_POD: Final = "Pod and its controller"
_BOTH: Final = "Pod of a NodeSet, Node"
_NOTHING: Final = "Nothing."


class NodeSetReason(Reason):
    """On NodeSets. Events report only what is wrong, and nothing about `Updated` and `Ready`."""

    ACCEPTED = (
        "Accepted",
        _NODESET,
        "",
        "`Accepted` True",
        "The nodeset-controller serves the NodeSet.",
        _NOTHING,
    )
    REFUSED = (
        "Refused",
        _NODESET,
        "Warning",
        "`Accepted` False; `Ready` False",
        "The nodeset-controller does not serve the NodeSet, or only in part; the message says why.",
        "Correct what the message names.",
    )
    ALL_SCHEDULED = (
        "AllScheduled",
        _NODESET,
        "",
        "`Scheduled` True",
        "As many Nodes have a Pod as are wanted; the message says why other Nodes are not feasible.",
        _NOTHING,
    )
    GPUS_NOT_ANNOUNCED = (
        "GPUsNotAnnounced",
        _NODESET,
        "Warning",
        "`Scheduled` False",
        "A Node has a GPU model and announces no GPUs yet; its Pod waits for them for a limited time.",
        "If it lasts, look at the device plugin of the Node in the message.",
    )
    TOO_FEW_FEASIBLE_NODES = (
        "TooFewFeasibleNodes",
        _NODESET,
        "Warning",
        "`Scheduled` False",
        "Fewer Nodes are feasible than wanted, or none is; the message has the reasons in groups.",
        "Fix or add Nodes, or correct the NodeSet's affinity, tolerations or `replicas`.",
    )
    PODS_MISSING = (
        "PodsMissing",
        _NODESET,
        "Warning",
        "`Scheduled` False",
        "Fewer Pods exist than wanted; the message has names that Pods of no NodeSet have.",
        "Wait, or delete the Pods that have those names.",
    )
    PODS_UNSCHEDULABLE = (
        "PodsUnschedulable",
        _NODESET,
        "Warning",
        "`Scheduled` False",
        "A Pod did not fit on its Node; the message has the scheduler's reason.",
        "Remove the cause on the Node, such as a host port that is taken.",
    )
    ALL_UPDATED = (
        "AllUpdated",
        _NODESET,
        "",
        "`Updated` True",
        "Every Pod has the current template.",
        _NOTHING,
    )
    PODS_OUTDATED = (
        "PodsOutdated",
        _NODESET,
        "",
        "`Updated` False",
        "Some Pods have an older template; the message says what the update waits for.",
        "Wait, or do what the message says about the updated Pods.",
    )
    ALL_READY = ("AllReady", _NODESET, "", "`Ready` True", "Every wanted Pod is ready.", _NOTHING)
    PODS_NOT_READY = (
        "PodsNotReady",
        _NODESET,
        "",
        "`Ready` False",
        "Fewer Pods are ready than wanted; the message says why, where Kubernetes knows.",
        "Wait, or read the log of such a Pod.",
    )
    BEING_DELETED = (
        "BeingDeleted",
        _NODESET,
        "",
        "`Ready` False",
        "The NodeSet is being deleted; the message says what its Pods wait for.",
        "Wait for the jobs there to end.",
    )
    SLURM_ANSWERS = ("SlurmAnswers", _NODESET, "", "`SlurmKnown` True", "There is news from Slurm.", _NOTHING)
    NO_NEWS_FROM_BUS = (
        "NoNewsFromBus",
        _NODESET,
        "Warning",
        "`SlurmKnown` False",
        "No messages come from NATS; the nodeset-controller chooses and deletes no Pod meanwhile.",
        "See [SunkNodeSetBlind](runbooks/SunkNodeSetBlind.md).",
    )
    NO_NEWS_FROM_SLURM = (
        "NoNewsFromSlurm",
        _NODESET,
        "Warning",
        "`SlurmKnown` False",
        "There is no news from Slurm; the nodeset-controller chooses and deletes no Pod meanwhile.",
        "See [SunkSlurmStateStale](runbooks/SunkSlurmStateStale.md).",
    )
    NODES_MISSING = (
        "NodesMissing",
        _NODESET,
        "Warning",
        "`SlurmKnown` False",
        "Slurm suddenly knows fewer than half of the nodes that it knew; no Pod is chosen meanwhile.",
        "See [SunkNodeSetBlind](runbooks/SunkNodeSetBlind.md).",
    )


class EvictionReason(Reason):
    """On Pods of users that have to leave a Node. A refused eviction is tried again without another Event."""

    EVICTING_FOR_SLURM = (
        "EvictingForSlurm",
        _USER_POD,
        "Warning",
        "",
        "The Pod is about to be evicted, because its Node is locked for the Slurm job in the message.",
        "Nothing, or see [which Pods may stay](security.md#who-may-stay-on-a-locked-node).",
    )
    DELETING_FOR_SLURM = (
        "DeletingForSlurm",
        _USER_POD,
        "Warning",
        "",
        "The Pod is about to be deleted for such a job: its eviction was refused for `deleteAfterSeconds`.",
        "Nothing, or ask the administrator.",
    )
    EVICTING_FOR_UPDATE = (
        "EvictingForUpdate",
        _USER_POD,
        "Warning",
        "",
        "The Pod is about to be evicted: an update of a NodeSet empties its node (`placeholders: evict`).",
        "Nothing; a Pod that its controller creates again gets another job.",
    )


class NodeReason(Reason):
    """On the Pods of NodeSets and on their Nodes: what Slurm says of the node."""

    NOT_DRAINED = (
        "NotDrained",
        _BOTH,
        "",
        "`SlurmDrain` False",
        "The Slurm node has no DRAIN flag.",
        _NOTHING,
    )
    DRAINING = (
        "Draining",
        _BOTH,
        "",
        "`SlurmDrain` True",
        "The Slurm node is drained, and a job still runs or completes there.",
        "Read Slurm's reason in the message; wait for the jobs.",
    )
    DRAINED = (
        "Drained",
        _BOTH,
        "",
        "`SlurmDrain` True",
        "The Slurm node is drained, and no job runs there.",
        "Read Slurm's reason in the message; a drain whose reason begins with `k8s:` ends with its cause.",
    )
    IDLE = ("Idle", _BOTH, "", "`SlurmRunning` False", "No job runs or completes on the node.", _NOTHING)
    BUSY = ("Busy", _BOTH, "", "`SlurmRunning` True", "A job runs or completes on the node.", _NOTHING)
    RESPONDING = (
        "Responding",
        _BOTH,
        "",
        "`SlurmNotResponding` False",
        "slurmctld reaches slurmd.",
        _NOTHING,
    )
    NOT_RESPONDING = (
        "NotResponding",
        _BOTH,
        "",
        "`SlurmNotResponding` True",
        "slurmctld does not reach slurmd; the message has the node's state.",
        "Look at the Pod, its log and its Node.",
    )
    NO_NEWS = (
        "SlurmNotHeard",
        _BOTH,
        "",
        "`SlurmDrain`, `SlurmRunning`, `SlurmNotResponding`, `SlurmCordon` Unknown",
        "No news from Slurm for `SLURM_UNKNOWN_S`; the NodeSet's condition `SlurmKnown` has the time.",
        "See [SunkSlurmStateStale](runbooks/SunkSlurmStateStale.md).",
    )
    NOT_IN_SLURM = (
        "NodeNotInSlurm",
        _BOTH,
        "",
        "`SlurmDrain`, `SlurmRunning`, `SlurmNotResponding` Unknown",
        "Slurm answers, but has not known the node for `SLURM_UNKNOWN_S`.",
        "See the end of [SunkNodeSetBlind](runbooks/SunkNodeSetBlind.md).",
    )
    DRAINED_IN_SLURM = (
        "DrainedInSlurm",
        _NODE,
        "",
        "`SlurmCordon` True",
        "The drain came from Slurm: its reason does not begin with `k8s:`.",
        "Read Slurm's reason in the message; the services never end such a drain.",
    )
    NOT_DRAINED_IN_SLURM = (
        "NotDrainedInSlurm",
        _NODE,
        "",
        "`SlurmCordon` False",
        "The Slurm node is not drained, or its drain came from Kubernetes.",
        _NOTHING,
    )
    NO_POD_STATE = (
        "NoPodState",
        _NODE,
        "",
        "`SlurmDrain`, `SlurmRunning`, `SlurmNotResponding`, `SlurmCordon` Unknown",
        "The NodeSet Pod does not have Slurm's state of the node yet, or Slurm does not know the node.",
        "Wait until slurmd registers; if it does not, read the log of the Pod.",
    )
    POD_GONE = (
        "PodGone",
        _NODE,
        "",
        "`SlurmDrain`, `SlurmRunning`, `SlurmNotResponding`, `SlurmCordon` Unknown",
        "The Node has no NodeSet Pod at the moment, and its NodeSet will make one again.",
        "Wait, or see the conditions of the NodeSet.",
    )
    POWER_RESET = (
        "production-powerreset",
        _NODE,
        "",
        "`PhaseState` True",
        "The requester in the message requested a reboot of the Node; condition and reason are settings.",
        "Nothing: the platform reboots the Node and takes the condition away.",
    )
    STRAY_LOCK_TAINT = (
        "StrayLockTaint",
        _NODE,
        "Warning",
        "",
        "The Node had the taint of a lock that no lock needs; the nodeset-controller removes it.",
        "Make sure that the client in the message does not set it again.",
    )
