"""Every knob of the syncer. Read from ``SUNK_SYNCER_<FIELD>``."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_runtime.config import load
from sunk_runtime.errors import ConfigError
from sunk_runtime.jetstream import BusSettings

Seconds = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, le=1)]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every knob of this process. Durations are in seconds and end in ``_s``."""

    cluster: ClusterName
    """The Slurm cluster's name, as subjects and buckets spell it."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password_file: Path | None = None
    nats_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    slurm_url: str = "http://127.0.0.1:6820"
    """slurmrestd."""
    slurm_token_file: Path | None = None
    """A path, never the token: it rotates on disk. This or the key file is needed."""
    slurm_key_file: Path | None = None
    """slurmctld's JWT key. Whoever holds it is Slurm's root, so production gives a token file."""
    slurm_user: str = "root"
    """Whom tokens that we sign name. Only root and SlurmUser may drain where there is no slurmdbd."""
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Health and metrics. 0: the system chooses."""
    poll_s: Seconds = 1.0
    """How often all nodes and all job states are asked for, while that is cheap."""
    poll_share: Share = 0.10
    """The share of a core that polling may cost: an answer that took 1.5 s is followed by 15 s of rest."""
    poll_max_s: Seconds = 15.0
    """The longest rest, however long the last answer took: changes made by others are seen that late."""
    poll_timeout_s: Seconds = 30.0
    """One answer with every node; 10,000 take 1.5 s."""
    call_timeout_s: Seconds = 5.0
    """One call about one node or job."""
    statistics_s: Seconds = 10.0
    """How often partitions and the scheduler's statistics are asked for."""
    job_refresh_s: Seconds = 30.0
    """A job is looked at this often though its state is the same: reason and extra change without it."""
    job_refresh_rate: Annotated[float, Meta(gt=0)] = 20.0
    """At most so many of those looks a second; with many jobs each waits longer."""
    doubt_s: Seconds = 30.0
    """An answer that lacks many known nodes or jobs is not believed before it lasted this long."""
    prehook_pause_s: Seconds = 30.0
    """How long a drain of a failed prolog stays at least, so that a broken gateway is no endless loop."""
    resync_s: Seconds = 300.0
    """Everything is compared again this often."""
    lease_ttl_s: Annotated[int, Meta(ge=1, le=60)] = 3
    """3 with one NATS server, 15 with three: longer than an election there."""

    @property
    def bus(self) -> BusSettings:
        """Where NATS is."""
        return BusSettings(
            url=self.nats_url,
            user=self.nats_user,
            password_file=self.nats_password_file,
            replicas=self.nats_replicas,
        )


def from_environment() -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a variable is unknown, missing or not allowed.
    """
    config = load(Config, os.environ, "SUNK_SYNCER_")
    if (config.slurm_token_file is None) == (config.slurm_key_file is None):
        raise ConfigError("give one of SUNK_SYNCER_SLURM_TOKEN_FILE and SUNK_SYNCER_SLURM_KEY_FILE")
    return config
