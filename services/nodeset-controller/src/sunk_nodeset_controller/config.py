"""Every knob of nodeset-controller. Durations are in seconds and end in ``_s``."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_nodeset_controller.locks.model import Clearing, LockTaint, Rules
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.node_controller.gres import read_gres
from sunk_nodeset_controller.node_controller.reboots import RebootSettings
from sunk_nodeset_controller.node_controller.slurm_files import Wanted
from sunk_nodeset_controller.nodesets.gpus import GPU, GpuRules
from sunk_nodeset_controller.nodesets.topology import Topology
from sunk_runtime.config import load
from sunk_runtime.errors import ConfigError
from sunk_runtime.settings import Seconds, ServiceSettings

PREFIX: Final = "SUNK_NODESET_CONTROLLER_"
LEVELS_MAX: Final = 8
EXEMPT_CLASSES: Final = ("system-node-critical",)


class Config(ServiceSettings, frozen=True, kw_only=True):
    """Settings, each the environment variable ``SUNK_NODESET_CONTROLLER_<FIELD>``."""

    clusters: tuple[ClusterName, ...]
    """The Slurm clusters that may have NodeSets, comma-separated: the bus has streams for these."""
    kubeconfig: Path | None = None
    """None inside a cluster, where token and address are mounted."""
    nats_certificate_file: Path | None = None
    """The certificate of NATS, of which metrics show the end. None: it is not shown."""
    kube_timeout_s: Seconds = 10.0
    """One call of the API server; a watch lasts longer, and says that it lives."""
    lease_namespace: str = "sunk"
    """Where the Lease of this service is."""
    lease_name: str = "sunk-nodeset-controller"
    """Two installations on one API server need two names."""
    lease_ttl_s: Annotated[int, Meta(ge=2)] = 3
    """How long after a leader's death another takes over. Longer if the API server often takes 0.5 s."""
    resync_s: Seconds = 300.0
    """Every object is checked again after this time, even if no change was reported."""
    replace_after_s: Seconds = 10.0
    """A Pod that fails at once is not made again in a hot loop."""
    slurm_stale_s: Seconds = 60.0
    """After this time without news from Slurm its NodeSets say so. The syncer passes news on every 10 s."""
    slurm_unknown_s: Seconds = 600.0
    """After this time without news from Slurm the conditions of Pods and Nodes slowly turn Unknown."""
    topology: Literal["none", "tree", "block", "both"] = "none"
    """What is generated into the ConfigMap ``<cluster>-topology``: topology.conf with a tree or with blocks;
    ``both``: topology.conf with the tree for Slurm 24.11, and topology.yaml with tree and blocks for 26.05,
    whose nodes then register with their places."""
    topology_labels: tuple[str, ...] = ()
    """Labels of Nodes: for a tree from the top down, for blocks the one that names the block."""
    topology_block_label: str = ""
    """With ``both``: the label of Nodes that names the block; empty: a tree alone."""
    topology_block_sizes: tuple[Annotated[int, Meta(gt=0)], ...] = ()
    """Slurm's BlockSizes; nothing leaves them to Slurm."""
    gres: tuple[str, ...] = ()
    """Resources that gres.conf is generated for, into the ConfigMap ``<cluster>-gres``: ``resource=name``, or
    with the devices' prefix, which GPUs need, ``nvidia.com/gpu=gpu:/dev/nvidia``."""
    gres_type_label: tuple[str, ...] = ("gpu.nvidia.com/model", "nvidia.com/gpu.product")
    """Labels of Nodes whose value is the model of their GPUs, of which the Type is made: the first that a
    Node has."""
    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    """Resources of Nodes that are GPUs to Slurm, for NodeSets with ``gpus: FromNode``; comma-separated."""
    gpu_wait_s: Annotated[float, Meta(ge=0)] = 300.0
    """For how long the Pod of a Node with such a label waits for the device plugin to announce GPUs. Then the
    Pod is made without."""
    lock_key: str = "sunk.coreweave.com/lock"
    """The key of the taint. Every Pod that may stay tolerates it. The annotation's key is fixed."""
    lock_value: str = "true"
    """The value of the taint while the Node is locked."""
    lock_effect: Literal["NoExecute", "NoSchedule"] = "NoExecute"
    """``NoExecute``: Kubernetes deletes other Pods. ``NoSchedule``: the nodeset-controller evicts them."""
    lock_clear_s: Annotated[float, Meta(ge=0)] = 0.5
    """With ``NoSchedule``: how long no Pod may be in the way before the lock is granted, because a kubelet
    may admit a Pod late."""
    lock_exempt_namespaces: tuple[str, ...] = ()
    """With ``NoSchedule``: Pods of these namespaces may stay, and do not hold up a lock."""
    lock_exempt_priority_classes: tuple[str, ...] = EXEMPT_CLASSES
    """With ``NoSchedule``: Pods of these priority classes may stay."""
    lock_exempt_daemonsets: bool = True
    """With ``NoSchedule``: Pods of DaemonSets that exist, and static Pods, may stay."""
    lock_delete_after_s: Annotated[float, Meta(ge=0)] = 0.0
    """With ``NoSchedule``: a Pod whose eviction is refused is deleted after this long. 0: never."""
    lock_dry_run: bool = False
    """With ``NoSchedule``: evictions are dry runs. Refusals and `explain` name the Pods that would be
    evicted."""
    node_permissions: tuple[ClusterName, ...] = ()
    """The Slurm clusters that may have Nodes rebooted: those with ``syncer.nodePermissions.enabled``."""
    reboot_condition: str = "PhaseState"
    """The type of the Node condition that asks for a reboot (``syncer.hooksAPI.nodeRebootCondition``)."""
    reboot_reason: str = "production-powerreset"
    """The reason of that condition (``syncer.hooksAPI.nodeRebootReason``)."""
    reboot_conditions: tuple[str, ...] = ()
    """``cluster=type``: the type for one Slurm cluster instead."""
    reboot_reasons: tuple[str, ...] = ()
    """``cluster=reason``: the reason for one Slurm cluster instead."""
    lock_linger_s: Annotated[float, Meta(ge=0)] = 5.0
    """A lock without holder stays this long, so that the tasks of an array do not thrash the taint."""

    @property
    def lock_eviction(self) -> EvictionPolicy:
        """The taint of a locked Node, and who may stay there."""
        return EvictionPolicy(
            LockTaint(key=self.lock_key, value=self.lock_value, effect=self.lock_effect),
            Clearing(
                exempt_namespaces=frozenset(self.lock_exempt_namespaces),
                exempt_priority_classes=frozenset(self.lock_exempt_priority_classes),
                are_daemons_exempt=self.lock_exempt_daemonsets,
                delete_after_s=self.lock_delete_after_s or None,
                is_dry_run=self.lock_dry_run,
            ),
        )

    def reboots(self, cluster: str) -> RebootSettings:
        """How a reboot is asked for in *cluster*.

        Raises:
            ConfigError: an entry of ``reboot_conditions`` or ``reboot_reasons`` is not allowed.
        """
        conditions = self._by_cluster("REBOOT_CONDITIONS", self.reboot_conditions)
        reasons = self._by_cluster("REBOOT_REASONS", self.reboot_reasons)
        return RebootSettings(
            is_permitted=cluster in self.node_permissions,
            condition=conditions.get(cluster, self.reboot_condition),
            reason=reasons.get(cluster, self.reboot_reason),
        )

    @property
    def lock_rules(self) -> Rules:
        """The settings of the lock's machine."""
        clear_s = self.lock_clear_s if self.lock_effect == "NoSchedule" else 0.0
        return Rules(linger_s=self.lock_linger_s, clear_s=clear_s)

    @property
    def gpu_rules(self) -> GpuRules:
        """What GPUs of Nodes are known by."""
        return GpuRules(
            resources=self.gpu_resources,
            labels=self.gres_type_label,
            wait_s=self.gpu_wait_s,
            is_listed=any(one.name == GPU for one in self.generated.gres),
        )

    @property
    def topology_rules(self) -> Topology:
        """How Nodes' labels become a topology."""
        return Topology(
            kind=self.topology,
            labels=self.topology_labels,
            block_label=self.topology_block_label,
            block_sizes=self.topology_block_sizes,
        )

    @property
    def generated(self) -> Wanted:
        """The files that are generated for Slurm.

        Raises:
            ConfigError: an entry of ``gres`` is not allowed, or there is a topology without labels.
        """
        if self.topology != "none" and not self.topology_labels:
            raise ConfigError(f"{PREFIX}TOPOLOGY={self.topology} needs {PREFIX}TOPOLOGY_LABELS")
        if self.topology_block_label and self.topology != "both":
            raise ConfigError(f"{PREFIX}TOPOLOGY_BLOCK_LABEL has no effect unless {PREFIX}TOPOLOGY=both")
        if len(self.topology_labels) > LEVELS_MAX:
            raise ConfigError(f"{PREFIX}TOPOLOGY_LABELS: a tree has at most {LEVELS_MAX} levels")
        try:
            gres = tuple(read_gres(text) for text in self.gres)
        except ValueError as error:
            raise ConfigError(f"{PREFIX}GRES: {error}") from error
        return Wanted(topology=self.topology_rules, gres=gres, gres_type_labels=self.gres_type_label)

    def _by_cluster(self, name: str, entries: tuple[str, ...]) -> dict[str, str]:
        """Return the values of a setting by cluster. Raises `ConfigError`."""
        found: dict[str, str] = {}
        for entry in entries:
            cluster, _, value = entry.partition("=")
            if not (cluster and value):
                raise ConfigError(f"{PREFIX}{name}: {entry!r} is not cluster=value")
            if cluster not in self.clusters:
                raise ConfigError(f"{PREFIX}{name}: {cluster} is not in {PREFIX}CLUSTERS")
            found[cluster] = value
        return found


def read_config(arguments: Sequence[str] = ()) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing, not allowed, or would be without effect.
    """
    config = load(Config, os.environ, PREFIX, arguments)
    for cluster in config.clusters:
        config.reboots(cluster)
    idle = {
        "LOCK_DRY_RUN": config.lock_dry_run,
        "LOCK_EXEMPT_NAMESPACES": config.lock_exempt_namespaces,
        "LOCK_EXEMPT_PRIORITY_CLASSES": config.lock_exempt_priority_classes not in {(), EXEMPT_CLASSES},
        "LOCK_DELETE_AFTER_S": config.lock_delete_after_s,
    }
    ignored = ", ".join(f"{PREFIX}{name}" for name, is_set in idle.items() if is_set)
    if ignored and config.lock_effect == "NoExecute":
        raise ConfigError(f"{ignored}: with {PREFIX}LOCK_EFFECT=NoExecute Kubernetes removes all other Pods")
    return config
