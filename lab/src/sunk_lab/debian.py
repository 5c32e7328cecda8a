"""Debian root file systems, made by mmdebstrap and kept in the user's cache.

A root is named after its recipe's hash, so a changed recipe is another root and a finished one is never
touched. It appears by one rename under a file lock: two runs at once make it once, a killed run leaves only
a temporary folder that the next one removes. The mirror is the machine's own, asked for when it is needed
and left out of what is kept.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import TO_MAKE_ROOTS, Report, require
from sunk_lab.locks import alone
from sunk_lab.processes import run

_LAYOUT: Final = 1  # Raise it when this module makes roots differently, so that old ones are not taken.
_BUILD_TIMEOUT_S: Final = 600.0
_LEFT_OUT: Final = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_APT_OPTIONS: Final = (
    'Acquire::Languages "none"',
    'Acquire::Check-Valid-Until "false"',  # The Release file of a testing suite can be expired on a mirror.
    'Apt::Install-Recommends "false"',
)


@dataclass(frozen=True, kw_only=True)
class User:
    """An account without password, group of its own name and number."""

    name: str
    uid: int
    home: str = "/"
    shell: str = "/bin/bash"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a root is made of."""

    suite: str
    packages: Sequence[str]
    users: Sequence[User] = ()
    folders: Sequence[str] = ()
    """Empty folders, absolute, for what is mounted over them later."""
    script: Path | None = None
    """What sh runs in it in the end, as root, with the mirror."""

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits that change with anything in the recipe."""
        fields = asdict(self)
        script = fields.pop("script")
        if script:
            fields["script"] = script.read_text()
        text = json.dumps([_LAYOUT, fields, _LEFT_OUT, _APT_OPTIONS], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""A blank, say, of a path in the kernel's list of mounts."""


def root_of(recipe: Recipe, cache: Path, report: Report) -> Path:
    """Return the root of *recipe* in *cache*, made now unless it is there: about 20 s, 110 MB and more.

    Raises:
        LabError: Not root, no mmdebstrap and no apt to get it with, or the build failed.
    """
    root = cache / f"{recipe.suite}-{recipe.digest}"
    if root.exists():
        return root
    need_root("making a Debian root")
    with alone(cache / f"{root.name}.lock"):
        if not root.exists():
            new = cache / f".{root.name}.new"
            remove_unfinished(new)
            require(TO_MAKE_ROOTS, report=report)
            report(f"making a Debian {recipe.suite} root with {len(recipe.packages)} packages (about 20 s)")
            run(*_mmdebstrap(recipe, new, mirror()), timeout_s=_BUILD_TIMEOUT_S)
            _finish(recipe, new)
            new.rename(root)
    return root


def remove_unfinished(root: Path) -> None:
    """Remove a root that a killed mmdebstrap has left, with what was mounted in it; none is success.

    Without that, mmdebstrap refuses the folder for ever: ``/proc`` cannot be removed while it is mounted.

    Raises:
        LabError: Something in it cannot be unmounted.
    """
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [_ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines]
    for point in reversed(points):  # The last mounted first.
        if Path(point).is_relative_to(root):
            run("umount", "--lazy", point)
    shutil.rmtree(root, ignore_errors=True)


def need_root(purpose: str) -> None:
    """Raise LabError unless we are root."""
    if os.geteuid() != 0:
        raise LabError(f"{purpose} needs root: run it with sudo or in a root shell")


def is_machine_specific(name: str) -> bool:
    """Say whether *name*, relative to a root, tells of the machine that made it: kept out of images."""
    return name.startswith(("etc/apt/sources.list", "var/lib/apt/lists/", "var/cache/apt/", "var/log/"))


def _mmdebstrap(recipe: Recipe, target: Path, mirror: str) -> list[str]:
    script = recipe.script and shlex.quote(str(recipe.script))
    return [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--include={','.join(recipe.packages)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        *(f"--aptopt={option}" for option in _APT_OPTIONS),
        *([f'--customize-hook=chroot "$1" sh -c "$(cat {script})"'] if script else []),
        recipe.suite,
        str(target),
        mirror,
    ]


def mirror() -> str:
    """Return the address of the first Debian archive in this machine's apt configuration."""
    sites = run(
        "apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE)", "Created-By: Packages", "Origin: Debian"
    ).splitlines()
    archives = [site for origin, _, site in (line.partition(" ") for line in sites) if origin == "Debian"]
    if not archives:
        raise LabError("apt knows no Debian archive: run apt-get update, or add one to /etc/apt/sources.list")
    return next((site for site in archives if "security" not in site), archives[0])


def _finish(recipe: Recipe, root: Path) -> None:
    for user in recipe.users:
        _append(root / "etc/passwd", f"{user.name}:x:{user.uid}:{user.uid}::{user.home}:{user.shell}")
        _append(root / "etc/group", f"{user.name}:x:{user.uid}:")
        _append(root / "etc/shadow", f"{user.name}:!:20000:0:99999:7:::")
    for folder in recipe.folders:
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    (root / "etc/hosts").touch()  # minbase has none, and files can only be mounted over files.
    (root / "etc/resolv.conf").write_text("")  # mmdebstrap copied the machine's.
    (root / "etc/hostname").write_text("localhost\n")
    for path in (*(root / "etc/apt").glob("sources.list*"), root / "var/log/bootstrap.log"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for stale in (*(root / "var/lib/apt/lists").glob("*"), *(root / "var/cache/apt").glob("*")):
        shutil.rmtree(stale) if stale.is_dir() else stale.unlink()


def _append(file: Path, line: str) -> None:
    with file.open("a") as accounts:
        accounts.write(f"{line}\n")
