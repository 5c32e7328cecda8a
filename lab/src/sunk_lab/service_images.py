"""The images of the five services, made without a container engine: what `images/services.Dockerfile` makes.

Each holds Debian's Python and, in ``/opt/sunk``, what its service declares and nothing else. All five have
the lowest layer in common. Their version is made of everything that goes into them, so what did not change
is neither built nor loaded again, and what did makes new Pods.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from sunk_lab import debian, images
from sunk_lab.errors import LabError
from sunk_lab.images import Image, ImageConfig, Tree, write_images
from sunk_lab.kube.prerequisites import Report
from sunk_lab.locks import alone
from sunk_lab.processes import environment, run

SERVICES: Final = ("syncer", "nodeset-controller", "pod-scheduler", "hook-gateway", "metrics-exporter")
REGISTRY: Final = "localhost"
PLACE: Final = PurePosixPath("opt/sunk")
"""Where the packages are in the image. Python runs this folder: its ``__main__`` is the service's."""
BILL_OF_MATERIALS: Final = "sbom.cdx.json"
"""Its name there, as in the images that a builder makes."""
_SOURCE: Final = Path(__file__).resolve().parents[3]
_SUITES: Final = {(3, 11): "bookworm", (3, 13): "trixie"}
"""The Debian suite by its Python: packages with compiled parts are for one."""
_USER: Final = debian.User(name="sunk", uid=65532, home="/nonexistent")
_KEPT: Final = 4  # Several runs of different code may be under way.
_BUILD_TIMEOUT_S: Final = 900.0
_VOLATILE: Final = ("proc/", "sys/", "dev/", "run/", "tmp/")


@cache
def version() -> str:
    """Return the version of the images, of the code as it was when first asked: twelve hexadecimal digits."""
    digest = hashlib.sha256(repr((_python(), _recipe())).encode())
    for file in _inputs():
        digest.update(f"\0{file.relative_to(_SOURCE)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def repository(service: str) -> str:
    """Return the name of the image of *service*, without registry and version."""
    return f"sunk/{service}"


def tag(service: str) -> str:
    """Return the whole name of the image of *service*."""
    return f"{REGISTRY}/{repository(service)}:{version()}"


def prepare(cache: Path, report: Report) -> None:
    """Make what takes long and seldom changes: the layer that all have in common.

    Raises:
        LabError: It cannot be made here; says why.
    """
    debian.root_of(_recipe(), cache / "python", report)


def archive_of(services: Sequence[str], cache: Path, report: Report) -> Path:
    """Return a docker archive of the images of *services* below *cache*, made now unless it is there.

    Raises:
        LabError: One cannot be made here; says why.
    """
    name = hashlib.sha256("\0".join(sorted(services)).encode()).hexdigest()[:8]
    archive = cache / "images" / f"services-{version()}-{name}.tar"
    if archive.exists():
        return archive
    base = debian.root_of(_recipe(), cache / "python", report)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with alone(cache / "images" / f"services-{name}.lock"):
        if not archive.exists():
            report(f"making the images of {', '.join(services)}")
            with tempfile.TemporaryDirectory(dir=cache, prefix=".services-") as work:
                _write(archive, services, base, Path(work))
            _forget_old(archive.parent.glob(f"services-*-{name}.tar"))
    return archive


def _forget_old(archives: Iterable[Path]) -> None:
    """Remove all but the newest few of *archives*: each change of the code makes another."""
    for archive in sorted(archives, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        archive.unlink(missing_ok=True)


def _write(archive: Path, services: Iterable[str], base: Path, work: Path) -> None:
    system = Tree(root=base, keep=_belongs_into_image, is_unprivileged=True)
    made = [
        Image(
            tag=tag(service),
            layers=[system, Tree(root=_packages(service, work), at=PLACE, is_roots=True)],
            config=_config(service),
        )
        for service in services
    ]
    write_images(archive, made)


def _config(service: str) -> ImageConfig:
    return ImageConfig(
        entrypoint=("python3", f"/{PLACE}"),
        environment={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": f"/{PLACE}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        },
        user=f"{_USER.uid}:{_USER.uid}",
        labels={
            "org.opencontainers.image.title": f"sunk-{service}",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": version(),
        },
    )


def _packages(service: str, work: Path) -> Path:
    """Return a new folder of what *service* needs, compiled, with the service as its ``__main__``."""
    made = work / service
    variables = {
        "UV_PROJECT_ENVIRONMENT": str(made),
        "UV_LINK_MODE": "copy",
        "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",  # Times are zero in images.
    }
    # uv would take a package of ours from its cache, as it was when its pyproject.toml last changed.
    anew = [word for name in _members() for word in ("--refresh-package", name)]
    what = ("--package", f"sunk-{service}", "--no-dev", "--no-editable", "--compile-bytecode", *anew)
    run(
        *(_uv(), "sync", "--quiet", "--project", _SOURCE, "--python", sys.executable, *what),
        env=variables,
        timeout_s=_BUILD_TIMEOUT_S,
    )
    (found,) = made.glob("lib/python*/site-packages")
    module = f"sunk_{service.replace('-', '_')}"
    shutil.copy(found / module / "__main__.py", found / "__main__.py")
    _write_bill_of_materials(service, found / BILL_OF_MATERIALS)
    return found


def _write_bill_of_materials(service: str, file: Path) -> None:
    """Write what *service* is made of, in the form of CycloneDX, without what differs each time."""
    form = ("--format", "cyclonedx1.5", "--output-file", file)
    run(_uv(), "export", "--quiet", "--project", _SOURCE, "--package", f"sunk-{service}", "--no-dev", *form)
    bill = json.loads(file.read_text())
    del bill["serialNumber"], bill["metadata"]["timestamp"]
    file.write_text(json.dumps(bill, indent=2))


def _recipe() -> debian.Recipe:
    return debian.Recipe(suite=_suite(), packages=("python3", "ca-certificates"), users=(_USER,))


def _suite() -> str:
    if suite := _SUITES.get(_python()):
        return suite
    known = " or ".join(f"{major}.{minor}" for major, minor in _SUITES)
    raise LabError(f"the services' images need Python {known} here, as Debian has: this is {sys.version}")


def _python() -> tuple[int, int]:
    return sys.version_info[:2]


def _members() -> list[str]:
    """Return the names of our own packages that an image may hold."""
    files = (*_SOURCE.glob("libs/sunk_*/pyproject.toml"), *_SOURCE.glob("services/*/pyproject.toml"))
    return sorted(tomllib.loads(file.read_text())["project"]["name"] for file in files)


def _inputs() -> Iterator[Path]:
    """Yield every file that the images are made of, sorted."""
    yield from (Path(__file__), Path(images.__file__))  # How they are made.
    yield from sorted(_SOURCE.glob("uv.lock"))
    yield _SOURCE / "pyproject.toml"
    for folder in (*sorted(_SOURCE.glob("libs/sunk_*")), *sorted(_SOURCE.glob("services/*"))):
        yield folder / "pyproject.toml"
        yield from (path for path in sorted(folder.glob("src/**/*")) if _is_input(path))


def _is_input(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _uv() -> Path:
    places = os.pathsep.join((str(_SOURCE / ".tools/bin"), environment(None).get("PATH", "")))
    found = shutil.which("uv", path=places)
    if not found:
        raise LabError("uv is missing, with which the services' images are made: run it by ./task")
    return Path(found)


def _belongs_into_image(path: PurePosixPath) -> bool:
    name = str(path)
    return not name.startswith(_VOLATILE) and not debian.is_machine_specific(name)
