"""The Slurm releases that the lab runs: Debian's own packages, one suite each."""

from dataclasses import dataclass
from typing import Final

from sunk_lab.errors import LabError


@dataclass(frozen=True, kw_only=True)
class Release:
    """One Slurm release."""

    version: str
    suite: str
    """Debian's name for the suite that has it."""
    api: str
    """The newest data parser that tells how a job shares its nodes."""
    lacks: tuple[str, ...] = ()
    """Packages of Slurm's image that its suite does not have; a suite in the making loses some at times."""

    @property
    def image(self) -> str:
        """Return the tag of its container image."""
        return f"localhost/slurm:{self.version}"


SLURM_24_11: Final = Release(version="24.11", suite="trixie", api="v0.0.42")
SLURM_26_05: Final = Release(version="26.05", suite="forky", api="v0.0.44", lacks=("libnss-sss", "sssd-ldap"))
RELEASES: Final = (SLURM_24_11, SLURM_26_05)


def release_of(version: str) -> Release:
    """Return the release *version*.

    Raises:
        LabError: There is no such release here; names those there are.
    """
    for release in RELEASES:
        if release.version == version:
            return release
    raise LabError(f"no Slurm {version} here: there are {', '.join(release.version for release in RELEASES)}")
