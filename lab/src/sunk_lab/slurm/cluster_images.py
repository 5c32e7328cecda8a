"""Images of a whole Slurm cluster for the charts, made without a container engine.

Slurm's is what `images/slurm.Dockerfile` makes: every daemon, sshd and Python, from the same list of
packages. The database's has MariaDB and its tools.
"""

from pathlib import Path, PurePosixPath
from typing import Final

from sunk_lab import debian
from sunk_lab.images import Image, ImageConfig, Tree, write_images
from sunk_lab.kube.prerequisites import Say
from sunk_lab.locks import alone
from sunk_lab.slurm.releases import SLURM_24_11, Release
from sunk_lab.slurm.roots import PLACEHOLDER_USER

REGISTRY: Final = "localhost"
SLURM: Final = "sunk/slurm"
DATABASE: Final = "mariadb"
DATABASE_VERSION: Final = "11.8"
_PACKAGES: Final = Path(__file__).resolve().parents[4] / "images" / "slurm.packages"
_FOLDERS: Final = (
    "/etc/slurm",
    "/etc/sunk",
    "/var/spool/slurmctld",
    "/var/spool/slurmd",
    "/var/log/slurm",
)
_LIBRARY: Final = PurePosixPath("usr/local/lib/sunk")
_VOLATILE: Final = ("proc/", "sys/", "dev/", "run/", "tmp/", "etc/ssh/ssh_host_")


def slurm_image_of(release: Release, cache: Path, say: Say) -> Path:
    """Return the docker archive of Slurm's image below *cache*, made now unless it is there.

    Raises:
        LabError: It cannot be made here; says why.
    """
    root = debian.root_of(_slurm_recipe(release), cache / "slurm", say)
    layers = [Tree(root=root, keep=_belongs_into_image)]
    if release.suite != SLURM_24_11.suite:
        # slurmdbd 26.05 fails with the libmariadb of forky (11.8.9), and runs with trixie's (11.8.6).
        other = debian.root_of(_slurm_recipe(SLURM_24_11), cache / "slurm", say)
        (library,) = other.glob("usr/lib/*/libmariadb.so.3")
        layers.append(
            Tree(root=library.parent, at=_LIBRARY, keep=lambda path: path.name == "libmariadb.so.3")
        )
    tag = f"{REGISTRY}/{SLURM}:{release.version}"
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": f"/{_LIBRARY}"}
    config = ImageConfig(entrypoint=("/usr/bin/tini", "--"), environment=variables)
    return _archive(root, Image(tag=tag, layers=layers, config=config), say)


def database_image_of(cache: Path, say: Say) -> Path:
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
    root = debian.root_of(recipe, cache / "mariadb", say)
    config = ImageConfig(
        entrypoint=("/usr/bin/tini", "--"),
        environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        user="999:999",
        ports=(3306,),
    )
    tag = f"{REGISTRY}/{DATABASE}:{DATABASE_VERSION}"
    # mariadb-dump comes with scripts that need Perl; nothing of the charts does.
    tree = Tree(root=root, keep=lambda path: _belongs_into_image(path) and "perl" not in str(path))
    return _archive(root, Image(tag=tag, layers=[tree], config=config), say)


def packages(release: Release) -> tuple[str, ...]:
    """Return Debian's packages of Slurm's image, as far as the suite of *release* has them."""
    lines = (line.strip() for line in _PACKAGES.read_text().splitlines())
    return tuple(line for line in lines if line and not line.startswith("#") and line not in release.lacks)


def _slurm_recipe(release: Release) -> debian.Recipe:
    return debian.Recipe(
        suite=release.suite, packages=packages(release), users=(PLACEHOLDER_USER,), folders=_FOLDERS
    )


def _archive(root: Path, image: Image, say: Say) -> Path:
    archive = root.with_name(f"{root.name}.image.tar")
    with alone(archive.with_suffix(".lock")):
        if not archive.exists():
            say(f"packing the image {image.tag}")
            write_images(archive, [image])
    return archive


def _belongs_into_image(path: PurePosixPath) -> bool:
    name = str(path)
    return not name.startswith(_VOLATILE) and not debian.is_machine_specific(name)
