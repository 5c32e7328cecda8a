"""The Dockerfiles, built by podman from bases that are made here: what is in them and what they run."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from sunk_lab import debian, service_images
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.podman import Podman, check
from sunk_lab.slurm.releases import RELEASES, Release

pytestmark = [pytest.mark.engine, pytest.mark.install, pytest.mark.timeout(900)]
PROJECT: Final = Path(__file__).parents[2]
AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
PYTHON: Final = "docker.io/library/python:base"


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Generator[Podman]:
    """Podman with Debian's suites, and trixie with Python, under the names of the bases."""
    try:
        check()
    except LabError as error:
        pytest.skip(str(error))
    made = Podman(tmp_path_factory.mktemp("podman"))
    cache = from_environment().cache / "bases"
    of_slurm = [(f"docker.io/library/debian:{release.suite}-slim", release.suite, ()) for release in RELEASES]
    for tag, suite, packages in (*of_slurm, (PYTHON, "trixie", ("python3", "python3-pip"))):
        recipe = debian.Recipe(suite=suite, packages=("ca-certificates", *packages))
        root = debian.root_of(recipe, cache, lambda _line: None)
        made.import_root(root, tag, without="*.pyc")  # As in the official image of Python.
    try:
        yield made
    finally:
        made.clear()


def build(podman: Podman, dockerfile: str, tag: str, sources: Path, **arguments: str) -> None:
    """Build *dockerfile* with what this machine trusts and where it gets packages from."""
    given = arguments | {"PIP_CERT": str(AUTHORITIES), "SSL_CERT_FILE": str(AUTHORITIES)}
    podman(
        *("build", "--pull=never", "--network=host", "--format=docker", "--tag", tag),
        *("--volume", f"{AUTHORITIES}:{AUTHORITIES}:ro"),
        *("--volume", f"{sources}:/etc/apt/sources.list:ro"),
        *(f"--build-arg={name}={value}" for name, value in given.items()),
        *("--env=PIP_BREAK_SYSTEM_PACKAGES=1", "--file", PROJECT / dockerfile, PROJECT),
    )


def sources_of(suite: str, folder: Path) -> Path:
    """Return a file with the machine's own mirror of *suite*, as apt reads it."""
    file = folder / "sources.list"
    file.write_text(f"deb {debian.mirror()} {suite} main\n")
    return file


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_slurms_image_has_its_daemons_and_sssd_and_tells_what_is_in_it(
    podman: Podman, tmp_path: Path, release: Release
) -> None:
    image, sources = f"slurm:{release.version}", sources_of(release.suite, tmp_path)
    arguments = {"SUITE": release.suite, "VERSION": release.version}
    build(podman, "images/slurm.Dockerfile", image, sources, **arguments)

    def inside(*command: str) -> str:
        return podman("run", "--rm", "--network=none", image, *command)

    for daemon in ("slurmctld", "slurmd", "slurmrestd"):
        assert inside(daemon, "-V").startswith(f"slurm-wlm {release.version}")
    assert inside("which", "slurmdbd", "sackd", "sshd")
    if "sssd-ldap" not in release.lacks:
        assert inside("sssd", "--version")
        assert "sss" in inside("grep", "^passwd", "/etc/nsswitch.conf")
    assert inside("id", "-u", "sunk").strip() == "64100"
    assert f"\nslurmctld {release.version}" in inside("cat", "/usr/share/sunk-packages.txt")


@pytest.mark.parametrize("service", service_images.SERVICES)
def test_a_services_image_runs_it_as_nobody_and_has_no_compiler(
    podman: Podman, tmp_path: Path, service: str
) -> None:
    tag, sources = f"{service}:test", sources_of("trixie", tmp_path)
    build(podman, "images/services.Dockerfile", tag, sources, BASE=PYTHON, SERVICE=service)
    run = ("run", "--rm", "--network=none", "--read-only", tag)

    with pytest.raises(LabError, match=f"SUNK_{service.upper().replace('-', '_')}_"):
        podman(*run)  # Its settings are missing, and it says which.

    shell = (*run[:-1], "--entrypoint=sh", tag, "-c")
    assert podman(*shell, "id -u; command -v gcc cc uv || true").split() == ["65532"]
    assert json.loads(podman(*shell, "cat /opt/sunk/sbom.cdx.json"))["components"]
    imported = f"python3 -v -c 'import sunk_{service.replace('-', '_')}.main' 2>&1"
    assert "code object from '/opt/sunk/" in podman(*shell, imported)
    assert (
        podman(*shell, f"{imported} | grep 'code object from /.*[.]py$' || true") == ""
    )  # Compiled only now.
