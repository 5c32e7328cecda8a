"""Every knob of nodeset-controller. Durations are in seconds and end in ``_s``."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_nodeset_controller.locks.model import LockTaint
from sunk_runtime.config import load
from sunk_runtime.settings import Seconds, ServiceSettings

PREFIX: Final = "SUNK_NODESET_CONTROLLER_"


class Config(ServiceSettings, frozen=True, kw_only=True):
    """Settings, each the environment variable ``SUNK_NODESET_CONTROLLER_<FIELD>``."""

    clusters: tuple[ClusterName, ...]
    """The Slurm clusters that may have NodeSets, comma-separated: the bus has streams for these."""
    kubeconfig: Path | None = None
    """None inside a cluster, where token and address are mounted."""
    kube_timeout_s: Seconds = 10.0
    """One call of the API server; a watch lasts longer, and says that it lives."""
    lease_namespace: str = "sunk"
    """Where the Lease of this service is."""
    lease_name: str = "sunk-nodeset-controller"
    """Two installations on one API server need two names."""
    lease_ttl_s: Annotated[int, Meta(ge=2)] = 3
    """15 in production: a slow API server is no reason to change hands."""
    resync_s: Seconds = 300.0
    """Bounds how long a change that nobody told us of may stay unseen."""
    replace_after_s: Seconds = 10.0
    """A Pod that fails at once is not made again in a hot loop."""
    lock_key: str = "sunk.coreweave.com/lock"
    """The key of the taint, and of the annotation that names who holds the lock."""
    lock_value: str = "true"
    """The value of the taint while the Node is locked."""
    lock_effect: str = "NoExecute"
    """The effect of the taint; no other makes Pods leave."""
    lock_linger_s: Annotated[float, Meta(ge=0)] = 5.0
    """A lock without holder stays this long, so that the tasks of an array do not thrash the taint."""

    @property
    def lock_taint(self) -> LockTaint:
        """The taint of a locked Node."""
        return LockTaint(key=self.lock_key, value=self.lock_value, effect=self.lock_effect)


def read_config(arguments: Sequence[str] = ()) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """
    return load(Config, os.environ, PREFIX, arguments)
