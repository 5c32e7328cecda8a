"""Slurm's states of nodes and jobs: one base state and any number of flags.

slurmrestd reports a list such as ``["IDLE", "DRAIN"]``; sinfo prints that node as ``drained``. The
compound words are not states of their own: they are computed here, with the names and the rules of
Slurm's own predicates. A word that is not known here is a newer Slurm's: it is kept, and decides nothing.

Source: SchedMD/slurm 24.11 and 26.05, slurm/slurm.h, src/common/slurm_protocol_defs.{c,h}.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Self

import msgspec

NODE_BASES: Final = frozenset(
    {"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"},
)
NODE_FLAGS: Final = frozenset(
    {
        "BLOCKED",
        "CLOUD",
        "COMPLETING",
        "DRAIN",
        "DYNAMIC_FUTURE",
        "DYNAMIC_NORM",
        "EXTERNAL",
        "FAIL",
        "INVALID",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "PLANNED",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_DOWN_ASAP",
        "POWER_DOWN_FORCE",
        "POWER_DRAIN",
        "POWER_UP",
        "REBOOT_CANCELED",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
        "RESUME",
        "UNDRAIN",
    },
)
"""Those that Slurm 24.11 to 26.05 have; others may come."""
JOB_FLAGS: Final = frozenset(
    {
        "COMPLETING",
        "CONFIGURING",
        "EXPEDITING",
        "LAUNCH_FAILED",
        "POWER_UP_NODE",
        "RECONFIG_FAIL",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESIZING",
        "RESV_DEL_HOLD",
        "REVOKED",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
    },
)
"""Those that Slurm 24.11 to 26.05 have; others may come."""
JOB_ACTIVE: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED"})
JOB_ENDED: Final = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    },
)
JOB_BASES: Final = JOB_ACTIVE | JOB_ENDED


@lru_cache(maxsize=1024)
def _split(words: tuple[str, ...], bases: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Return the base state and the flags of *words*, which may come in any order and case.

    Thousands of nodes and jobs are in few states.
    """
    upper = [word.upper() for word in words]
    base = next((word for word in upper if word in bases), "UNKNOWN")
    return base, frozenset(upper) - {base}


class NodeState(msgspec.Struct, frozen=True):
    """The state of a Slurm node."""

    base: str
    flags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, words: Iterable[str]) -> Self:
        """Build a state from slurmrestd's list of words."""
        return cls(*_split(tuple(words), NODE_BASES))

    @property
    def is_drain(self) -> bool:
        """The DRAIN flag is set, whether or not jobs still run."""
        return "DRAIN" in self.flags

    @property
    def is_busy(self) -> bool:
        """A job runs or completes on the node."""
        return self.base in {"ALLOCATED", "MIXED"} or self.is_completing

    @property
    def is_draining(self) -> bool:
        """DRAIN is set and a job still runs or completes: sinfo's ``draining``."""
        return self.is_drain and self.is_busy

    @property
    def is_drained(self) -> bool:
        """DRAIN is set and no job is left: sinfo's ``drained``."""
        return self.is_drain and not self.is_busy

    @property
    def is_completing(self) -> bool:
        """Epilogs or processes of an ended job still hold the node."""
        return "COMPLETING" in self.flags

    @property
    def is_down(self) -> bool:
        """The base state is DOWN, whatever flags it carries."""
        return self.base == "DOWN"

    @property
    def unknown_words(self) -> frozenset[str]:
        """What a newer Slurm has said, or nobody."""
        return self.flags - NODE_FLAGS

    @property
    def is_not_responding(self) -> bool:
        """Slurm's flag: slurmctld does not hear from the node's slurmd."""
        return "NOT_RESPONDING" in self.flags


class JobState(msgspec.Struct, frozen=True):
    """The state of a Slurm job."""

    base: str
    flags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, words: Iterable[str]) -> Self:
        """Build a state from slurmrestd's list of words."""
        return cls(*_split(tuple(words), JOB_BASES))

    @property
    def is_pending(self) -> bool:
        """It waits for its allocation, for the first time or again."""
        return self.base == "PENDING"

    @property
    def is_running(self) -> bool:
        """It holds nodes and is not suspended; its prologs may still run."""
        return self.base == "RUNNING"

    @property
    def is_suspended(self) -> bool:
        """It holds nodes and its processes are stopped."""
        return self.base == "SUSPENDED"

    @property
    def is_completing(self) -> bool:
        """It has ended or is requeued, and epilogs or processes still hold nodes."""
        return "COMPLETING" in self.flags

    @property
    def is_over(self) -> bool:
        """Its state is final; it may still be completing. An unknown state is a newer Slurm: not over."""
        return self.base in JOB_ENDED

    @property
    def unknown_words(self) -> frozenset[str]:
        """What a newer Slurm has said, or nobody."""
        return self.flags - JOB_FLAGS
