"""Every knob of the pod-scheduler. Read from arguments and from ``SUNK_POD_SCHEDULER_<FIELD>``."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_kube.wellknown import TAINT_LOCK
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.tokens import KEY_BYTES_MIN
from sunk_pod_scheduler.podspec.namespace_policy import Policy
from sunk_pod_scheduler.podspec.scopes import PodScope
from sunk_pod_scheduler.podspec.validation import GPU_RESOURCES, UNCOUNTED_RESOURCES, Rules
from sunk_runtime.config import load, read_table
from sunk_runtime.errors import ConfigError
from sunk_runtime.settings import Seconds
from sunk_slurm.settings import SlurmSettings
from sunk_slurm.tokens import FileUserTokens, KeyUserTokens, UserTokens

PREFIX: Final = "SUNK_POD_SCHEDULER_"


class Config(SlurmSettings, frozen=True, kw_only=True):
    """Every knob of this process. Durations are in seconds and end in ``_s``."""

    cluster: ClusterName
    """The Slurm cluster's name, as subjects and buckets spell it."""
    kubeconfig: Path | None = None
    """How to reach the API server; empty inside a cluster."""
    namespace: str = "slurm"
    """Our own: of the Lease, and of the Pods where the scope names no namespace."""
    scheduler_names: Annotated[tuple[str, ...], Meta(min_length=1)] = ("sunk-scheduler",)
    """``spec.schedulerName`` of the Pods that are ours; comma-separated. ``--scheduler-name`` overrides."""
    scope: Literal["cluster", "namespace"] = "cluster"
    """Where Pods are ours: everywhere, or in ``namespaces``."""
    namespaces: tuple[str, ...] = ()
    """Comma-separated; empty: our own."""
    slurm_kill_wait_s: Annotated[float, Meta(gt=5)] = 30.0
    """slurm.conf's KillWait. ``--slurm-kill-wait`` overrides it."""
    hooks_url: str = "http://sunk-hook-gateway:8081"
    """Where placeholders' scripts find the hook gateway, as the nodes see it."""
    hooks_ca_file: str = ""
    """What vouches for its certificate, as the nodes see it; empty: what their system trusts."""
    hooks_env_file: str = ""
    """A node's own settings of its hooks (``hooks.env`` of helm/slurm), as the nodes see it. Where a node has
    it, scripts take from it where the gateway is by now, in place of ``hooks_url`` and ``hooks_ca_file``."""
    key_file: Path
    """A file of at least 32 random bytes, the key of tokens and marks. Keep it: without it the pod-scheduler
    no longer recognises its placeholders."""
    user_id: Annotated[int, Meta(gt=0)] = 64100
    """Slurm user of placeholders. slurmctld must know this user. Root is refused."""
    group_id: Annotated[int, Meta(gt=0)] = 64100
    """Slurm group of placeholders."""
    user_tokens_file: Path | None = None
    """A JSON object of tokens, by the number of ``user_id`` and of each of the policy's ``userIds``. Each
    user's jobs are submitted with that user's token. The file is read again when it changes. Empty: the
    scheduler signs such tokens with slurmctld's key. Without that key its own token submits all jobs, and
    Slurm's rules for the users do not apply. For a granted ``group-id`` its own token submits the job in
    any case."""
    policy_file: Path | None = None
    """JSON: ``namespaces``, what Pods of each may name: ``userIds``, ``groupIds``, ``accounts``, ``qos``,
    ``partitions``, ``reservations``, ``priorityMax``; ``*`` is for all others. ``default``, for what neither
    says: ``deny`` (if not given), it may not be named; ``allow``, anything but other users and groups.
    ``priorityClasses``: the ``qos`` of each PriorityClass."""
    gpu_types: tuple[str, ...] = ()
    """GRES types: ``NVIDIA_H100=h100,NVIDIA_L4=l4``. Empty: GPUs are asked for without a type."""
    spells_gpu_types: bool = False
    """A GPU model that ``gpu_types`` does not have is asked for by the type that it has on nodes of NodeSets
    with ``gpus: FromNode``: in small letters, without the vendor. False, for nodes whose types were typed by
    hand: such a Pod is refused, or with empty ``gpu_types`` gets GPUs of any type."""
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    """Resources of Pods that Slurm counts as ``gres/gpu``; comma-separated."""
    uncounted_resources: tuple[str, ...] = UNCOUNTED_RESOURCES
    """Resources of device plugins that Slurm does not count. A Pod that requests any other is refused: Slurm
    would give its node to more Pods than it has devices for."""
    pod_affinity: Literal["warn", "refuse"] = "warn"
    """What happens to Pods that require affinity, anti-affinity or spread among Pods, which Slurm does not
    follow. ``warn``: an Event says so. ``refuse``: they are not scheduled."""
    requires_cpu_limits: bool = False
    """Refuse Pods with a container without CPU limit, or with limits of more than they request in whole
    CPUs, on nodes that they share with Slurm's jobs: all of these weigh no more than slurmd's requests."""
    requires_memory_limits: bool = False
    """The same of memory, in whole MiB: a Pod that takes more than Slurm gave it has the kernel end jobs of
    others on its node, for slurmd's Pod requests little."""
    lost_jobs: Literal["adopt", "delete"] = "adopt"
    """What becomes of Pods that run when slurmctld has lost their jobs: each gets another job on its node, or
    is deleted after ``lost_jobs_s``. With ``adopt`` a Pod stays until Slurm gives its node to other jobs. It
    also stays if nothing tells whether its job was lost or has ended."""
    lost_jobs_s: Seconds = 600.0
    """With ``lost_jobs=delete``: a Pod that runs without a job for so long is deleted."""
    gang_wait_s: Seconds = 300.0
    """How long a gang waits for members before its Pods are warned of it, and for the replacement of one that
    died before the gang ends."""
    lock_key: Annotated[str, Meta(min_length=1)] = TAINT_LOCK
    """Key of the taint that locks Nodes, as the nodeset-controller's: our Pods tolerate it."""
    topology_labels: tuple[str, ...] = ()
    """Labels of Nodes that name what they share in the network, from the top down: a gang's
    ranks follow them. Empty: they follow the names of the Slurm nodes."""
    silent_s: Seconds = 15.0
    """A placeholder's script whose call was cut off is dead after this time without a call: its Pod goes."""
    resync_s: Seconds = 300.0
    """Every Pod is looked at again this often."""
    lease_ttl_s: Annotated[int, Meta(ge=2, le=60)] = 3
    """How long after a leader's death another takes over. Longer if the API server often takes 0.5 s."""

    @property
    def watched_namespaces(self) -> tuple[str | None, ...]:
        """Where Pods are watched; None is everywhere."""
        return (None,) if self.scope == "cluster" else self.namespaces or (self.namespace,)

    def pod_scope(self) -> PodScope:
        """Return which Pods are ours."""
        where = self.watched_namespaces
        namespaces = None if None in where else tuple(name for name in where if name is not None)
        return PodScope(cluster=self.cluster, names=self.scheduler_names, namespaces=namespaces)

    def key(self) -> bytes:
        """Return the key of tokens and marks.

        Raises:
            ConfigError: the file cannot be read, or holds too little.
        """
        try:
            key = self.key_file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{PREFIX}KEY_FILE: cannot read {self.key_file}: {error.strerror}") from error
        if len(key) < KEY_BYTES_MIN:
            raise ConfigError(f"{PREFIX}KEY_FILE: {self.key_file} holds less than {KEY_BYTES_MIN} bytes")
        return key

    def user_tokens(self) -> UserTokens | None:
        """Return the tokens of those whose jobs we submit as themselves; None: as ourselves."""
        if self.user_tokens_file is not None:
            return FileUserTokens(self.user_tokens_file)
        return None if self.slurm_key_file is None else KeyUserTokens(self.slurm_key_file)

    def rules(self) -> Rules:
        """Return what Pods are judged by.

        Raises:
            ConfigError: the policy file or the GPU types are not what they must be.
        """
        policy = Policy() if self.policy_file is None else read_table(self.policy_file, Policy)
        policy = msgspec.structs.replace(policy, user_id=self.user_id, group_id=self.group_id)
        types = dict(_pair(entry) for entry in self.gpu_types)
        demanded = {"cpu": self.requires_cpu_limits, "memory": self.requires_memory_limits}
        return Rules(
            kill_wait_s=self.slurm_kill_wait_s,
            policy=policy,
            refuses_pod_affinity=self.pod_affinity == "refuse",
            requires_limits=tuple(name for name, is_demanded in demanded.items() if is_demanded),
            gpu_types=types,
            spells_gpu_types=self.spells_gpu_types,
            gpu_resources=self.gpu_resources,
            uncounted_resources=self.uncounted_resources,
        )

    def limits(self) -> Limits:
        """Return the settings that decisions need."""
        return Limits(
            kill_wait_s=self.slurm_kill_wait_s,
            hooks_url=self.hooks_url,
            adopts_lost=self.lost_jobs == "adopt",
            lost_s=self.lost_jobs_s,
            gang_wait_s=self.gang_wait_s,
            silent_s=self.silent_s,
        )


def _pair(entry: str) -> tuple[str, str]:
    model, equals, gres = entry.partition("=")
    if not (model and equals and gres):
        raise ConfigError(f"{PREFIX}GPU_TYPES: {entry!r} must be MODEL=TYPE")
    return model, gres


def read_config(arguments: Sequence[str]) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing, not allowed, or contradicts another.
    """
    return load(Config, os.environ, PREFIX, arguments)
