"""A batch job to submit, in slurmrestd's own field names.

What is left at its default is not sent. The names are the same in every API version of `wire.VERSIONS`.

Source: the OpenAPI documents of slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.44), ``job_desc_msg``.
"""

import msgspec

from sunk_slurm.wire import Number


class JobDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch job. slurmctld must know the user; shell and home do not matter.

    An unknown user is accepted and the job then stays PENDING with reason JobHeldAdmin.
    """

    script: str
    environment: tuple[str, ...]
    """``NAME=value``; never empty, or slurmctld refuses. No HOME and no USER are added, so give PATH."""
    current_working_directory: str
    """Required by slurmctld, although its description does not say so."""
    name: str = ""
    user_id: str = ""
    """A number or a name. Only an administrator's token may submit for others."""
    group_id: str = ""
    """Empty: the submitter's own. Only an administrator's token may submit with another."""
    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    hold: bool = False
    requeue: bool | None = None
    """None: as the cluster has it."""
    standard_output: str = ""
    standard_error: str = ""
    standard_input: str = ""
    comment: str = ""
    admin_comment: str = ""
    """An administrator's token is needed (2002)."""
    extra: str = ""
    """At most 1,024 characters. The job itself never sees it; prolog and epilog do."""
    constraints: str = ""
    """Features, as ``--constraint``."""
    prefer: str = ""
    dependency: str = ""
    licenses: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    minimum_nodes: int | None = None
    maximum_nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    memory_per_node: Number | None = None
    """MiB. Give it always: where memory is counted, a job without it takes the node's whole memory."""
    tres_per_node: str = ""
    """``gres/gpu:h100:2``."""
    shared: tuple[str, ...] = ()
    """``none`` (the whole node), ``user``, ``oversubscribe``; empty: as the partition has it."""
    time_limit: Number | None = None
    """Minutes."""
    priority: Number | None = None
    nice: int | None = None
    deadline: int | None = None
    kill_warning_signal: str = ""
    kill_warning_flags: tuple[str, ...] = ()
    kill_warning_delay: Number | None = None
    """Seconds before the end."""


class JobChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to change of a job; None stays as it is."""

    hold: bool | None = None
    """False releases it."""
    priority: Number | None = None
    """Refused while the job is held. At submission it undoes ``hold``: such a job gets it here, released."""
    excluded_nodes: tuple[str, ...] | None = None
    """Of a job that is pending, held or not; a list of "" clears them, an empty list changes nothing."""
    extra: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    """An administrator's token is needed."""


class NodeChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to change of a node, or of several; None stays as it is."""

    name: tuple[str, ...] | None = None
    """Hostlist expressions, where it is about several."""
    state: tuple[str, ...] | None = None
    reason: str | None = None
    extra: str | None = None
    comment: str | None = None
    features: tuple[str, ...] | None = None
    """Those that can be; an empty list changes nothing, a list of "" clears them."""
    features_act: tuple[str, ...] | None = None
    """Those that are. Given with `features`, or Slurm refuses to take one away that is active (2031)."""
    topology_str: str | None = None
    """Its place in each topology of topology.yaml; from v0.0.44 on."""
