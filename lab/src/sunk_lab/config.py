"""The lab's settings, read once from the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.slurm.releases import SLURM_24_11, Release, release_of

NUMBERS: Final = range(10)


@dataclass(frozen=True, kw_only=True)
class LabConfig:
    """Which lab, and where it is kept."""

    number: int = 0
    """Labs of different numbers run side by side: addresses, ports, bridge and folders follow from it."""
    cache: Path
    """What is built once and used by every lab."""
    kubeconfig: Path | None = None
    """The existing cluster to use instead of the lab's own."""
    nats_url: str = ""
    """The existing NATS to use instead of the lab's own."""
    is_nats_in_engine: bool = False
    """NATS runs in a container engine, not as a process."""
    slurm: Release = SLURM_24_11
    """The Slurm that runs in Pods."""
    seeds: int = 1
    """How many seeds the long random runs go through."""

    @property
    def folder(self) -> Path:
        """Return where everything of this lab is; gone once it is down."""
        return self.cache / "labs" / str(self.number)


def from_environment(environment: Mapping[str, str] | None = None) -> LabConfig:
    """Read the settings.

    ``SUNK_LAB_NUMBER`` (0 to 9), ``SUNK_LAB_CACHE`` (else ``$XDG_CACHE_HOME/sunk-lab``, else
    ``~/.cache/sunk-lab``), ``SUNK_LAB_KUBE=existing`` with ``KUBECONFIG``,
    ``SUNK_LAB_NATS_URL``, ``SUNK_LAB_ENGINE`` (1: NATS in Docker or podman), ``SUNK_LAB_SLURM`` (24.11 or
    26.05: which Slurm runs in Pods), ``SUNK_LAB_SEEDS`` (how many seeds long random runs go through).

    Raises:
        LabError: One of them is not allowed; names it and says what is.
    """
    found = os.environ if environment is None else environment
    number = found.get("SUNK_LAB_NUMBER", "0")
    if number not in map(str, NUMBERS):
        raise LabError(f"SUNK_LAB_NUMBER must be a number from 0 to 9, not {number!r}")
    seeds = found.get("SUNK_LAB_SEEDS", "1")
    if not seeds.isdecimal() or int(seeds) < 1:
        raise LabError(f"SUNK_LAB_SEEDS must be a number from 1, not {seeds!r}")
    caches = Path(found.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(found.get("SUNK_LAB_CACHE") or caches / "sunk-lab").absolute()
    return LabConfig(
        number=int(number),
        cache=cache,
        kubeconfig=_existing(found),
        nats_url=_nats_url(found),
        is_nats_in_engine=_is_on(found, "SUNK_LAB_ENGINE"),
        slurm=release_of(found.get("SUNK_LAB_SLURM", SLURM_24_11.version)),
        seeds=int(seeds),
    )


def _nats_url(found: Mapping[str, str]) -> str:
    url = found.get("SUNK_LAB_NATS_URL", "")
    if url and not url.startswith(("nats://", "tls://")):
        raise LabError(f"SUNK_LAB_NATS_URL must begin with nats:// or tls://, not {url!r}")
    return url


def _is_on(found: Mapping[str, str], name: str) -> bool:
    if (value := found.get(name, "0")) not in ("0", "1"):
        raise LabError(f"{name} must be 0 or 1, not {value!r}")
    return value == "1"


def _existing(found: Mapping[str, str]) -> Path | None:
    match found.get("SUNK_LAB_KUBE", ""), found.get("KUBECONFIG", ""):
        case "" | "own", _:
            return None
        case "existing", "":
            raise LabError("SUNK_LAB_KUBE=existing needs KUBECONFIG: the path of that cluster's kubeconfig")
        case "existing", path if not Path(path).is_file():
            raise LabError(f"KUBECONFIG names no file: {path}")
        case "existing", path:
            return Path(path).absolute()
        case other, _:
            raise LabError(f"SUNK_LAB_KUBE must be own or existing, not {other!r}")
