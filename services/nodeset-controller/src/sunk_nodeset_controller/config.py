"""Every knob of nodeset-controller. Durations are in seconds and end in ``_s``."""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_nodeset_controller.locks.model import LockTaint
from sunk_runtime.settings import Seconds, ServiceSettings

PREFIX: Final = "SUNK_NODESET_CONTROLLER_"


class Config(ServiceSettings, frozen=True, kw_only=True):
    """Settings, each the environment variable ``SUNK_NODESET_CONTROLLER_<FIELD>``."""

    clusters: tuple[ClusterName, ...]
    """The Slurm clusters that may have NodeSets, comma-separated: the bus has streams for these."""
    kubeconfig: Path | None = None
    """None inside a cluster, where token and address are mounted."""
    kube_timeout_s: Seconds = 10.0
    lease_namespace: str = "sunk"
    lease_name: str = "sunk-nodeset-controller"
    lease_ttl_s: Annotated[int, Meta(ge=2)] = 3
    """15 in production: a slow API server is no reason to change hands."""
    resync_s: Seconds = 300.0  # Bounds how long a change that nobody told us of may stay unseen.
    replace_after_s: Seconds = 10.0  # A Pod that fails at once is not made again in a hot loop.
    lock_key: str = "sunk.coreweave.com/lock"
    lock_value: str = "true"
    lock_effect: str = "NoExecute"
    lock_linger_s: Annotated[float, Meta(ge=0)] = 5.0
    """A lock without holder stays this long, so that the tasks of an array do not thrash the taint."""

    @property
    def lock_taint(self) -> LockTaint:
        """The taint of a locked Node."""
        return LockTaint(key=self.lock_key, value=self.lock_value, effect=self.lock_effect)
