"""Every knob of the syncer. Read from ``SUNK_SYNCER_<FIELD>``."""

import os
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_runtime.config import load
from sunk_runtime.settings import Seconds
from sunk_slurm.settings import SlurmSettings

Share = Annotated[float, Meta(gt=0, le=1)]

PREFIX: Final = "SUNK_SYNCER_"


class Config(SlurmSettings, frozen=True, kw_only=True):
    """Every knob of this process. Durations are in seconds and end in ``_s``."""

    cluster: ClusterName
    """The Slurm cluster's name, as subjects and buckets spell it."""
    poll_s: Seconds = 0.5
    """How often slurmctld's counters are asked for, which takes 2 ms; nodes and jobs when they have moved."""
    poll_share: Share = 0.10
    """The share of a core that lists may cost while they change: 0.5 s is followed by 5 s of rest."""
    poll_max_s: Seconds = 3.5
    """The longest from one list to the next while they change, however long the last answer took."""
    quiet_share: Share = 0.005
    """The share of a core that lists may cost while slurmctld's counters stand still."""
    quiet_max_s: Seconds = 60.0
    """The longest rest then: what slurmctld finds out by itself, such as a dead slurmd, is seen that late."""
    poll_timeout_s: Seconds = 30.0
    """One answer with every node; 10,000 take 1.5 s."""
    statistics_s: Seconds = 10.0
    """How often partitions and the scheduler's statistics are asked for."""
    job_refresh_s: Seconds = 30.0
    """A job is looked at this often though its state is the same: reason and extra change without it."""
    job_refresh_rate: Annotated[float, Meta(gt=0)] = 2.0
    """At most so many of those looks a second, 1.5 ms each; with many jobs each waits longer."""
    doubt_s: Seconds = 30.0
    """An answer that lacks many known nodes or jobs is not believed before it lasted this long."""
    prehook_pause_s: Seconds = 30.0
    """How long a drain of a failed prolog stays at least, so that a broken gateway is no endless loop."""
    writes_at_once: Annotated[int, Meta(ge=1, le=64)] = 4
    """Changes of Slurm in flight; slurmctld is single-minded, and looks want their share."""
    list_from: Annotated[int, Meta(ge=1)] = 20
    """From so many nodes that are to be drained at once, one list of all is read in place of single nodes; in
    a cluster of more than eight times as many, from an eighth of its nodes."""
    refused_again_s: Seconds = 15.0
    """When a change that Slurm refused is tried again, if nothing changes before."""
    view_age_max_s: Seconds = 30.0
    """What others say on the bus is not believed when NATS was silent for longer: nothing is written then."""
    kube_silent_max_s: Seconds = 60.0
    """The same where nodeset-controller was silent, which says each 10 s that it sees Kubernetes."""
    bucket_doubt_s: Seconds = 30.0
    """What the bucket of placements lacks lifts no drain before its owner has written there for so long: it
    may have been lost."""
    prolog_lost_s: Seconds = 10.0
    """A job in its prolog is requeued after so long if slurmd of each of its nodes is younger than it."""
    prolog_limit_s: Seconds = 100.0
    """The same where some are older and may still run theirs: more than slurm.conf's PrologEpilogTimeout."""
    held_release_s: Seconds = 300.0
    """How long a job stays held because of a failed lock, at least; then it goes on as soon as such locks may
    drain nodes again."""
    reconfigure_files: str = ""
    """Files of Slurm's configuration, with colons between, after whose change Slurm is reconfigured."""
    reconfigure_after_s: Seconds = 15.0
    """How long they must have stayed as they are."""
    reconfigure_again_s: Seconds = 120.0
    """Slurm is asked again so long after: the Pod of slurmctld may get a file a minute later than ours."""
    slurm_node_clean_up: bool = True
    """Whether records of nodes that registered themselves are deleted when no NodeSlice has them any more."""
    clean_up_after_s: Seconds = 10.0
    """How long no NodeSlice may have had it: an entry may move from one to another."""
    clean_up_doubt_s: Seconds = 120.0
    """The same where many went at once, which looks as if the NodeSlices themselves had been lost."""
    resync_s: Seconds = 300.0
    """Everything is compared again this often."""
    lease_ttl_s: Annotated[int, Meta(ge=1, le=60)] = 3
    """How long after a leader's death another takes over. Longer if slurmctld often takes 2 s for a write."""


def read_config(arguments: Sequence[str] = ()) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a variable is unknown, missing or not allowed.
    """
    return load(Config, os.environ, PREFIX, arguments)
