"""Debian packages that the lab stands on: installed where that is possible, else named in one sentence."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.locks import alone
from sunk_lab.processes import run

_PACKAGE_MANAGER: Final = Path("/run/lock/sunk-lab.apt")
"""Locked while apt-get runs: a machine has one, however many caches its runs keep."""
_WAIT_S: Final = 120
_INSTALL: Final = (
    "apt-get",
    "install",
    "--no-install-recommends",
    "-o",
    f"DPkg::Lock::Timeout={_WAIT_S}",
    "-qy",
)
Report = Callable[[str], None]
"""Takes a line for the person who waits."""

TO_RUN: Final = {
    "usr/sbin/iptables": "iptables",
    "usr/sbin/nft": "nftables",
    "usr/bin/openssl": "openssl",
    "usr/sbin/ip|usr/bin/ip|sbin/ip": "iproute2",
    "usr/sbin/sysctl|sbin/sysctl": "procps",
    "usr/bin/unshare": "util-linux",
    "usr/bin/nsenter": "util-linux",
}
TO_MAKE_ROOTS: Final = {"usr/bin/mmdebstrap": "mmdebstrap"}
TO_BUILD: Final = {
    "usr/include/seccomp.h": "libseccomp-dev",
    "usr/bin/gcc": "gcc",
    "usr/include/stdlib.h": "libc6-dev",
    "usr/bin/pkg-config": "pkg-config",
}


def missing(package_by_file: Mapping[str, str], root: Path = Path("/")) -> list[str]:
    """Return the packages of those files that are not there, sorted, each once.

    Args:
        package_by_file: A file below *root* by which its package is known to be there;
            alternatives are separated by a bar, as in ``usr/sbin/ip|sbin/ip``.
        root: Where to look.
    """
    return sorted(
        {
            package
            for files, package in package_by_file.items()
            if not any((root / file).exists() for file in files.split("|"))
        }
    )


def require(package_by_file: Mapping[str, str], *, report: Report) -> None:
    """Install what is missing; nothing happens if nothing is.

    Raises:
        LabError: Packages are missing and cannot be installed from here; says how to.
    """
    if not (packages := missing(package_by_file)):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise LabError(f"missing Debian packages: as root, apt-get install {' '.join(packages)}")
    with alone(_PACKAGE_MANAGER):
        if not (packages := missing(package_by_file)):  # Another run may just have installed them.
            return
        report(f"installing Debian packages: {' '.join(packages)}")
        update()
        run(*_INSTALL, *packages, env={"DEBIAN_FRONTEND": "noninteractive"}, timeout_s=600)


def update(wait_s: float = _WAIT_S) -> None:
    """Have apt read its archives' lists; wait while another program does, as the machine's own timers may.

    Only ``apt-get install`` waits by itself: ``DPkg::Lock::Timeout`` is not about the lists.

    Raises:
        LabError: apt failed, or the other program did not end in *wait_s* seconds.
    """
    until = time.monotonic() + wait_s
    while True:
        try:
            run("apt-get", "update", "-qy", env={"LC_ALL": "C"}, timeout_s=300)
        except LabError as error:
            if "Could not get lock" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.5)
        else:
            return


def program(name: str, package: str, *, cache: Path, report: Report) -> Path:
    """Return where the program *name* is: on PATH, or unpacked from Debian's *package*.

    Raises:
        LabError: It is not there and cannot be had from here; says how to.
    """
    if found := shutil.which(name):
        return Path(found)
    return unpacked(package, cache=cache, report=report) / "usr/bin" / name


def unpacked(package: str, *, cache: Path, report: Report) -> Path:
    """Return the folder that Debian's *package* is unpacked in; not installed, as some then start a server.

    Raises:
        LabError: It is not there and cannot be had from here; says how to.
    """
    kept = cache / "programs" / package
    with alone(cache / f"{package}.lock"):
        if not kept.exists():
            if os.geteuid() or not shutil.which("apt-get"):
                raise LabError(f"Debian's {package} is missing: only root can get it, with apt-get")
            report(f"getting the Debian package {package}")
            kept.parent.mkdir(parents=True, exist_ok=True)
            with alone(_PACKAGE_MANAGER), TemporaryDirectory(dir=kept.parent) as folder:
                where, new = Path(folder), Path(folder) / "unpacked"
                update()
                run("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package, cwd=where)
                run("dpkg-deb", "-x", next(where.glob("*.deb")), new)
                new.rename(kept)
    return kept
