"""What slurm.conf says, of the keys that the model heeds."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

SERVED: Final = {
    "24.11": ("v0.0.40", "v0.0.41", "v0.0.42"),
    "26.05": ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"),
}
"""The API versions of each release's slurmrestd."""
USERS: Final = {0: "root", 1: "daemon", 64030: "slurm", 64100: "sunk"}
_KEYS: Final = {
    "KillWait": "kill_wait_s",
    "MinJobAge": "min_job_age_s",
    "PrologEpilogTimeout": "prolog_epilog_timeout_s",
    "ReturnToService": "return_to_service",
    "SlurmdTimeout": "slurmd_timeout_s",
}


@dataclass(frozen=True, kw_only=True)
class PartitionConf:
    """A line ``PartitionName=``."""

    name: str
    nodes: str = "ALL"
    """A hostlist expression, or ALL: also those that register themselves."""
    priority_tier: int = 1
    grace_time_s: int = 0


@dataclass(frozen=True, kw_only=True)
class SlurmConf:
    """One cluster."""

    release: str = "26.05"
    cluster: str = "lab"
    kill_wait_s: int = 40
    min_job_age_s: int = 300
    prolog_epilog_timeout_s: int = 90
    return_to_service: int = 2
    slurmd_timeout_s: int = 30
    holds_on_prolog_fail: bool = False
    """Without ``nohold_on_prolog_fail``."""
    requeue_delay_s: int = 120
    has_accounting: bool = False
    """slurmrestd serves slurmdbd's records."""
    partitions: tuple[PartitionConf, ...] = (PartitionConf(name="main"),)
    """The first is the default."""
    users: tuple[int, ...] = tuple(USERS)
    """User ids that the controller's machine knows."""
    jwt_key: bytes = field(default=b"", repr=False)
    """What tokens are made with; empty: any token is believed to be slurm's."""

    @property
    def is_24_11(self) -> bool:
        """Whether it is the older release."""
        return self.release == "24.11"

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the API versions that are served."""
        return SERVED[self.release]


def with_lines(conf: SlurmConf, lines: Iterable[str]) -> SlurmConf:
    """Return *conf* with what *lines* of slurm.conf say; keys that the model does not heed change nothing."""
    for line in lines:
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if name := words.get("PartitionName"):
            partition = PartitionConf(
                name=name,
                nodes=words.get("Nodes", "ALL"),
                priority_tier=int(words.get("PriorityTier", 1)),
                grace_time_s=int(words.get("GraceTime", 0)),
            )
            conf = replace(conf, partitions=(*conf.partitions, partition))
        for key, ours in _KEYS.items():
            if key in words:
                conf = replace(conf, **{ours: int(words[key])})
    return conf
