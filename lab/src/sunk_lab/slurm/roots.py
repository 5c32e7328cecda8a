"""Roots and images of Slurm: one root for both, so what runs on the machine is what runs in Pods."""

from pathlib import Path, PurePosixPath
from typing import Final

from sunk_lab import debian
from sunk_lab.images import ImageConfig, write_root_image
from sunk_lab.kube.prerequisites import Report
from sunk_lab.locks import alone
from sunk_lab.slurm.releases import Release

SLURM_UID: Final = 64030
"""Debian's slurm user, in every release."""
PLACEHOLDER_USER: Final = debian.User(name="sunk", uid=64100)
"""Whom placeholder jobs run as. slurmctld must know the name, or it holds such jobs for ever."""
INSTANCE: Final = "/lab"
"""Where a cluster on the machine finds its own folder, whatever that is called outside."""

_PACKAGES: Final = (
    "slurmctld",
    "slurmd",
    "slurmrestd",
    "slurm-client",
    "slurm-wlm-jwt-plugin",
    "munge",
    "systemd-standalone-sysusers",
    "tini",
    "curl",
    "ca-certificates",
)
_ACCOUNTING: Final = (
    "slurmdbd",
    "slurm-wlm-mysql-plugin",
    "mariadb-server-core",
    "mariadb-client-core",
)
_VOLATILE: Final = ("proc/", "sys/", "dev/", "run/", "tmp/")


def recipe_of(release: Release, *, has_accounting: bool = False) -> debian.Recipe:
    """Return what the root of *release* is made of; *has_accounting*: with slurmdbd and its database."""
    return debian.Recipe(
        suite=release.suite,
        packages=(*_PACKAGES, *_ACCOUNTING) if has_accounting else _PACKAGES,
        users=(PLACEHOLDER_USER,),
        folders=(
            INSTANCE,
            "/etc/slurm",
            "/etc/sunk",
            "/var/spool/slurmctld",
            "/var/spool/slurmd",
            "/var/log/slurm",
        ),
    )


def root_of(release: Release, cache: Path, report: Report, *, has_accounting: bool = False) -> Path:
    """Return the root of *release* below *cache*, made now unless it is there.

    Raises:
        LabError: It cannot be made here; says why.
    """
    return debian.root_of(recipe_of(release, has_accounting=has_accounting), cache / "slurm", report)


def image_of(release: Release, cache: Path, report: Report) -> Path:
    """Return the docker archive of `Release.image` below *cache*, made now unless it is there.

    Raises:
        LabError: Its root cannot be made here; says why.
    """
    root = root_of(release, cache, report)
    archive = root.with_name(f"{root.name}.image.tar")
    if archive.exists():
        return archive
    with alone(archive.with_suffix(".lock")):
        if not archive.exists():
            report(f"packing the image {release.image}")
            config = ImageConfig(
                entrypoint=("/usr/bin/tini", "--"), environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
            )
            write_root_image(archive, tag=release.image, root=root, config=config, keep=_belongs_into_image)
    return archive


def _belongs_into_image(path: PurePosixPath) -> bool:
    name = str(path)
    return not name.startswith(_VOLATILE) and not debian.is_machine_specific(name)
