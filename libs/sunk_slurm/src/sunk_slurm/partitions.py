"""Partitions as slurmrestd sends them, as structs: only the fields that we use."""

import msgspec

from sunk_slurm.wire import Answer


class PartitionNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a partition."""

    configured: str = ""
    total: int = 0


class PartitionCpus(msgspec.Struct, frozen=True, kw_only=True):
    """The CPUs of a partition."""

    total: int = 0


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a partition takes jobs."""

    state: tuple[str, ...] = ()


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm partition."""

    name: str
    nodes: PartitionNodes = PartitionNodes()
    cpus: PartitionCpus = PartitionCpus()
    partition: PartitionStatus = PartitionStatus()


class PartitionsAnswer(Answer, frozen=True, kw_only=True):
    """GET partitions/."""

    partitions: tuple[Partition, ...] = ()
