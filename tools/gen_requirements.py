"""Writes what the images of the services are made of: each wheel's version and hashes, from `uv.lock`.

`images/requirements/SERVICE.txt` has the wheels of a service, `build.txt` those that build our own packages,
and `SERVICE.local.txt` our own packages of a service. Only wheels for Linux are named, for the processors of
`MACHINES`: nothing of a foreign package runs while an image is made.

`uv.lock` is not committed, for it has addresses. It is made of the pins of pyproject.toml, and has the hashes
that the package index named. ``--check`` writes nothing. It fails if a package or a version differs, or if
a hash is not one that the index has: a wheel that was added since then is no difference.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from generated import ROOT, settle, stale

FOLDER: Final = Path("images/requirements")
SERVICES: Final = (
    "syncer",
    "nodeset-controller",
    "pod-scheduler",
    "hook-gateway",
    "metrics-exporter",
    "view",
)
MACHINES: Final = ("x86_64", "aarch64")
OLDEST: Final = 11
"""The minor version of Python that the images have at least."""
NOTE: Final = "# Made by `./task gen` from the pins of pyproject.toml.\n"
_TAGS: Final = 3
"""At the end of a wheel's name: Python, ABI, platform."""
_HASH: Final = re.compile(r"--hash=(sha256:[0-9a-f]{64})")

Lock = Mapping[str, Any]


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    wanted = contents(lock)
    if "--check" not in arguments:
        return settle(wanted, arguments, FOLDER)
    there = {path: text_of(path) for path in wanted}
    problems = [problem for path in wanted for problem in differences(path, there[path], wanted[path])]
    problems += [f"{path}: is of no service" for path in stale(there, ROOT, FOLDER) if path not in wanted]
    for problem in problems:
        print(f"{problem}; run `./task gen`", file=sys.stderr)
    return 1 if problems else 0


def contents(lock: Lock) -> dict[Path, str]:
    """Return what each file must hold."""
    made = {FOLDER / "build.txt": hashed(exported("--only-group", "images"), lock)}
    for service in SERVICES:
        lines = exported("--package", f"sunk-{service}", "--no-dev", "--no-editable")
        local = [line for line in lines if line.startswith("./")]
        made[FOLDER / f"{service}.txt"] = hashed((line for line in lines if line not in local), lock)
        made[FOLDER / f"{service}.local.txt"] = NOTE + "".join(f"{line}\n" for line in local)
    return made


def exported(*what: str) -> list[str]:
    """Return the requirements that uv has locked, without a look at any index."""
    form = ("--frozen", "--offline", "--quiet", "--no-hashes", "--no-annotate", "--no-header")
    done = subprocess.run(
        ["uv", "export", *form, *what], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [line for line in done.stdout.splitlines() if line]


def hashed(lines: Iterable[str], lock: Lock) -> str:
    """Return *lines*, each with the hashes of its wheels, as pip reads them."""
    packages = {(one["name"], one.get("version", "")): one for one in lock["package"]}
    text = NOTE
    for line in lines:
        name, _, version = line.partition(";")[0].strip().partition("==")
        wheels = packages.get((name, version), {}).get("wheels", [])
        usable = [one for one in wheels if is_usable(one.get("url") or one.get("path", ""))]
        if not usable:
            raise SystemExit(f"{line}: there is no wheel for Linux on {' and '.join(MACHINES)}")
        found = sorted(one.get("hash", "") for one in usable)
        if not all(found):
            raise SystemExit(f"{line}: the package index names no hash for a wheel")
        text += " \\\n".join([line, *(f"    --hash={one}" for one in found)]) + "\n"
    return text


def is_usable(url: str) -> bool:
    """Whether the wheel at *url* is for an image: glibc, one of our processors, no older Python."""
    name = url.partition("#")[0].partition("?")[0].rpartition("/")[2]
    tags = name.removesuffix(".whl").rsplit("-", 3)[1:]
    if len(tags) != _TAGS:
        return False
    python, abi, platform = tags
    machines = platform.split(".")
    is_ours = "any" in machines or any(
        one.startswith(("manylinux", "linux_")) and one.endswith(MACHINES) for one in machines
    )
    minors = [int(found[1]) for tag in python.split(".") if (found := re.fullmatch(r"cp3(\d+)", tag))]
    is_for_all = abi in ("none", "abi3")
    is_not_threaded = not abi.endswith("t")
    return is_ours and is_not_threaded and (is_for_all or not minors or max(minors) >= OLDEST)


def differences(path: Path, there: str, wanted: str) -> list[str]:
    """Return what of *there*, which the file has, is not so: other packages, or hashes that no wheel has."""
    if without_hashes(there) != without_hashes(wanted):
        return [f"{path}: has other packages or versions than the pins"]
    bare = [f"{path}: {line} has no hash" for line, hashes in by_requirement(there).items() if not hashes]
    strange = set(_HASH.findall(there)) - set(_HASH.findall(wanted))
    return bare + [f"{path}: the package index has no wheel with {one}" for one in sorted(strange)]


def by_requirement(text: str) -> dict[str, list[str]]:
    """Return each requirement of *text* with its hashes; our own packages are folders, without any."""
    found: dict[str, list[str]] = {}
    hashes: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            hashes += _HASH.findall(line)
        elif not line.startswith(("#", "./")):
            hashes = found.setdefault(line.rstrip(" \\"), [])
    return found


def without_hashes(text: str) -> list[str]:
    """Return the requirements alone."""
    return [line.rstrip(" \\") for line in text.splitlines() if not line.startswith("    ")]


def text_of(path: Path) -> str:
    """Return what the file has; nothing if there is none."""
    return (ROOT / path).read_text() if (ROOT / path).exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
