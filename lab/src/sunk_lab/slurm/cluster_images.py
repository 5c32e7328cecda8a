"""Images of a whole Slurm cluster for the charts, made without a container engine.

Slurm's is what `images/slurm.Dockerfile` makes: every daemon, sshd and Python, from the same list of
packages and by the same script for PMIx. The database's has MariaDB and its tools.
"""

import hashlib
from pathlib import Path, PurePosixPath
from typing import Final

from sunk_lab import debian
from sunk_lab.images import ImageConfig, Keep, write_root_image
from sunk_lab.kube.prerequisites import Report
from sunk_lab.locks import alone
from sunk_lab.slurm.releases import SLURM_24_11, Release
from sunk_lab.slurm.roots import PLACEHOLDER_USER

REGISTRY: Final = "localhost"
SLURM: Final = "sunk/slurm"
DATABASE: Final = "mariadb"
DATABASE_VERSION: Final = "11.8"
_IMAGES: Final = Path(__file__).resolve().parents[4] / "images"
_FOLDERS: Final = (
    "/etc/slurm",
    "/etc/sunk",
    "/var/spool/slurmctld",
    "/var/spool/slurmd",
    "/var/log/slurm",
)
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_VOLATILE: Final = ("proc/", "sys/", "dev/", "run/", "tmp/", "etc/ssh/ssh_host_")


def slurm_image_of(release: Release, cache: Path, report: Report) -> Path:
    """Return the docker archive of Slurm's image below *cache*, made now unless it is there.

    Raises:
        LabError: It cannot be made here; says why.
    """
    root = debian.root_of(_slurm_recipe(release), cache / "slurm", report)
    tag = f"{REGISTRY}/{SLURM}:{release.version}"
    config = ImageConfig(entrypoint=("/usr/bin/tini", "--"), environment={"PATH": _PATH})
    return _archive(root, tag, config, report, _belongs_into_image)


def database_image_of(cache: Path, report: Report) -> Path:
    """Return the docker archive of the database's image below *cache*, made now unless it is there.

    Raises:
        LabError: It cannot be made here; says why.
    """
    recipe = debian.Recipe(
        suite=SLURM_24_11.suite,
        packages=("mariadb-server-core", "mariadb-client", "tini"),
        users=(debian.User(name="mysql", uid=999, home="/var/lib/mysql"),),
        folders=("/var/lib/mysql", "/run/mysqld"),
    )
    root = debian.root_of(recipe, cache / "mariadb", report)
    config = ImageConfig(
        entrypoint=("/usr/bin/tini", "--"),
        environment={"PATH": _PATH},
        user="999:999",
        ports=(3306,),
    )
    tag = f"{REGISTRY}/{DATABASE}:{DATABASE_VERSION}"
    # mariadb-dump comes with scripts that need Perl; nothing of the charts does.
    return _archive(
        root, tag, config, report, lambda path: _belongs_into_image(path) and "perl" not in str(path)
    )


def packages(release: Release) -> tuple[str, ...]:
    """Return Debian's packages of Slurm's image, as far as the suite of *release* has them."""
    lines = (line.strip() for line in (_IMAGES / "slurm.packages").read_text().splitlines())
    return tuple(line for line in lines if line and not line.startswith("#") and line not in release.lacks)


def _slurm_recipe(release: Release) -> debian.Recipe:
    return debian.Recipe(
        suite=release.suite,
        packages=packages(release),
        users=(PLACEHOLDER_USER,),
        folders=_FOLDERS,
        script=_IMAGES / "slurm-pmix",
    )


def _archive(root: Path, tag: str, config: ImageConfig, report: Report, keep: Keep) -> Path:
    """Return the archive of the image *tag*; another configuration is another archive."""
    digest = hashlib.sha256(repr((tag, config)).encode()).hexdigest()[:8]
    archive = root.with_name(f"{root.name}-{digest}.image.tar")
    with alone(archive.with_suffix(".lock")):
        if not archive.exists():
            report(f"packing the image {tag}")
            write_root_image(archive, tag=tag, root=root, config=config, keep=keep)
    return archive


def _belongs_into_image(path: PurePosixPath) -> bool:
    name = str(path)
    return not name.startswith(_VOLATILE) and not debian.is_machine_specific(name)
