"""Every label, annotation, taint, condition and finalizer that we read or write, each with its one writer.

Names under ``sunk.coreweave.com/`` are the documents' own where they name one: they are the interface.
Values that others own (``node.coreweave.cloud/…``, ``kubernetes.io/…``) are read only.

Source: SUNK's public documents for the taint and annotation ``lock``, ``drain``, ``running``,
``not_responding``, the five conditions and ``PhaseState``, and the annotations of Pods that Slurm places;
its public charts for ``nodeset``, ``role`` and ``cordonReason``; the others are ours. Kubernetes, "Well-Known
Labels, Annotations and Taints".
"""

from typing import Final

GROUP: Final = "sunk.coreweave.com"
"""The API group of NodeSet and NodeSlice."""
PREFIX: Final = GROUP + "/"

TAINT_LOCK: Final = PREFIX + "lock"
"""On Nodes, effect NoExecute, value ``true``. Writer: nodeset-controller, while a job holds the Node."""
ANNOTATION_LOCK: Final = PREFIX + "lock"
"""On Nodes and NodeSet Pods: ``false``, ``pending``, ``locked`` or ``locked_strict``.

Writer: nodeset-controller.
"""
ANNOTATION_LOCK_HOLDERS: Final = PREFIX + "lock-holders"
"""On Nodes: JSON list of the jobs that hold the lock. Writer: nodeset-controller."""
TAINT_LOCK_VALUE: Final = "true"

ANNOTATION_DRAIN: Final = PREFIX + "drain"
"""On Nodes and NodeSet Pods: Slurm's drain reason, cut to 1024 bytes. Writer: nodeset-controller."""
CONDITION_SLURM_DRAIN: Final = "SlurmDrain"
"""On NodeSet Pods and Nodes; message = Slurm's reason. Writer: nodeset-controller."""
CONDITION_SLURM_RUNNING: Final = "SlurmRunning"
"""On NodeSet Pods and Nodes: a job runs or completes there. Writer: nodeset-controller."""
CONDITION_SLURM_NOT_RESPONDING: Final = "SlurmNotResponding"
"""On NodeSet Pods and Nodes: slurmctld does not reach slurmd. Writer: nodeset-controller."""
CONDITION_SLURM_CORDON: Final = "SlurmCordon"
"""On Nodes: True only for a drain that was born in Slurm. Writer: nodeset-controller."""
LABEL_RUNNING: Final = PREFIX + "running"
"""On NodeSet Pods, ``true`` or ``false``, for dashboards only. Writer: nodeset-controller."""
LABEL_DRAIN: Final = PREFIX + "drain"
"""On NodeSet Pods, ``true`` or ``false``, for dashboards only. Writer: nodeset-controller."""
LABEL_NOT_RESPONDING: Final = PREFIX + "not_responding"
"""On NodeSet Pods, ``true`` or ``false``, for dashboards only. Writer: nodeset-controller."""

LABEL_NODESET: Final = PREFIX + "nodeset"
"""On Nodes and NodeSet Pods: the NodeSet's name. Writer: nodeset-controller."""
LABEL_NAMESPACE: Final = PREFIX + "namespace"
"""On Nodes: the NodeSet's namespace. Writer: nodeset-controller."""
LABEL_CLUSTER: Final = PREFIX + "cluster"
"""On Nodes and NodeSet Pods: the Slurm cluster's name. Writer: nodeset-controller."""
LABEL_POD: Final = PREFIX + "pod"
"""On Nodes: the NodeSet Pod's name, which is the Slurm node's. Writer: nodeset-controller."""
LABEL_ROLE: Final = PREFIX + "role"
"""On NodeSet Pods: ``compute``. Writer: nodeset-controller."""
ROLE_COMPUTE: Final = "compute"

ANNOTATION_CORDON: Final = PREFIX + "cordon"
"""On NodeSet Pods while their Node is cordoned: the reason. Writer: nodeset-controller."""
ANNOTATION_FEATURES: Final = PREFIX + "features"
"""On NodeSet Pods: Slurm features, comma-separated and sorted. Writer: nodeset-controller."""
ANNOTATION_TEMPLATE_HASH: Final = PREFIX + "template-hash"
"""On NodeSet Pods: hash of the template that made them. Writer: nodeset-controller."""
ANNOTATION_REASON_CHANGED: Final = PREFIX + "reason-changed"
"""On NodeSet Pods that were made while their Slurm node was out of service: since when, by slurmctld's clock.
Writer: nodeset-controller."""
ANNOTATION_CONDEMNED: Final = PREFIX + "condemned"
"""On NodeSet Pods that are to go: ``update``, ``scale-down`` or ``deletion``. Writer: nodeset-controller."""
LABEL_GRES_GPU: Final = PREFIX + "gres-gpu"
"""On NodeSet Pods: the GPUs that their slurmd announces, ``h100-8``. Writer: the template, else
nodeset-controller, where it read them of the Node."""
LABEL_PROTECTED: Final = PREFIX + "protected"
"""On NodeSet Pods, ``true``, while nobody may evict them: all but those on a cordoned Node whose Slurm node
is drained and idle, or has never registered. The NodeSet's disruption budget selects by it.

Writer: nodeset-controller.
"""
FINALIZER_NODESET: Final = PREFIX + "nodeset"
"""On NodeSets: their Pods go first, each when its jobs have ended. Writer: nodeset-controller."""
CONDITION_HPC_VERIFICATION: Final = "HPCVerification"
"""On Nodes: the last health verification; True is a pass. Writer: the platform."""
CONDITION_PHASE_STATE: Final = "PhaseState"
"""On Nodes: asks the platform for a reboot. Writer: nodeset-controller, by the reboot hook."""
ANNOTATION_CORDON_REASON: Final = "node.coreweave.cloud/cordonReason"
"""On Nodes: why they are cordoned. Writer: the platform, or the program that cordons."""

ANNOTATION_JOB: Final = PREFIX + "job"
"""On Pods that Slurm places: the placeholder job's id and mark. Writer: pod-scheduler."""
ANNOTATION_SCHEDULES: Final = PREFIX + "schedules"
"""On a pod-scheduler's Lease: JSON, which scheduler names it serves, and where. Writer: pod-scheduler."""
SCHEDULER_COMPONENT: Final = "pod-scheduler"
"""On a pod-scheduler's Lease, the value of `LABEL_COMPONENT`. Writer: pod-scheduler."""
JOB_ANNOTATIONS: Final = tuple(
    PREFIX + name
    for name in (
        "account",
        "comment",
        "constraints",
        "current-working-dir",
        "excluded-nodes",
        "exclusive",
        "group-id",
        "partition",
        "prefer",
        "priority",
        "qos",
        "required-nodes",
        "reservation",
        "timeout",
        "user-id",
    )
)
"""On Pods that Slurm places: the fifteen that its user may write."""

ANNOTATION_GANG: Final = PREFIX + "gang"
"""On Pods that Slurm places: ``none`` keeps a Job's Pods from being a gang. Writer: the Pod's user."""
ANNOTATION_GANG_SIZE: Final = PREFIX + "gang-size"
"""On members of a gang: how many they are. Writer: the Pod's user; pod-scheduler before they are bound."""
ANNOTATION_GANG_REQUESTED_SIZE: Final = PREFIX + "gang-asked-size"
"""On members of a gang, before they are bound: the ``gang-size`` that their user gave.

Writer: pod-scheduler, where it writes how many they are over it.
"""
ANNOTATION_GANG_MEMBERS_PER_NODE: Final = PREFIX + "gang-members-per-node"
"""On members of a gang: how many share a node; one if not given. Writer: the Pod's user."""
ANNOTATION_GANG_MIN_AVAILABLE: Final = PREFIX + "gang-min-available"
"""On members of a gang: with how many it may start and go on; all if not given. Writer: the Pod's user."""
ANNOTATION_GANG_POLICY: Final = PREFIX + "gang-policy"
"""On members of a gang: ``fail`` or ``replace``, when one dies. Writer: the Pod's user."""
ANNOTATION_GANG_RANK: Final = PREFIX + "gang-rank"
"""On members of a gang, before they are bound: the rank, from 0. Writer: pod-scheduler."""
ANNOTATION_GANG_NODES: Final = PREFIX + "gang-nodes"
"""On members of a gang, before they are bound: its Slurm nodes in the order of ranks, comma-separated.

Writer: pod-scheduler.
"""
ANNOTATION_GANG_LEADER: Final = PREFIX + "gang-leader"
"""On members of a gang, before they are bound: the name of the Pod of rank 0. Writer: pod-scheduler."""

LABEL_COMPONENT: Final = "app.kubernetes.io/component"
"""On the ConfigMaps that we generate: ``topology`` or ``gres``. Writer: nodeset-controller."""

LABEL_HOSTNAME: Final = "kubernetes.io/hostname"
TAINT_NOT_READY: Final = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TAINT_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
TAINT_DISK_PRESSURE: Final = "node.kubernetes.io/disk-pressure"
TAINT_MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"
TAINT_PID_PRESSURE: Final = "node.kubernetes.io/pid-pressure"
TAINT_NETWORK_UNAVAILABLE: Final = "node.kubernetes.io/network-unavailable"
CONDITION_READY: Final = "Ready"
