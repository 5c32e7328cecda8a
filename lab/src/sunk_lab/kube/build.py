"""The programs of the lab's Kubernetes, compiled once per machine and set of versions.

Kubernetes, etcd, CoreDNS and the volume provisioner are one binary, chosen by its name: their common text is
in memory once. The finished folder is named by a hash of everything that makes it, appears by a rename, and
is never written to again, so labs may build and run side by side.
"""

import hashlib
import math
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.kube import go
from sunk_lab.kube.prerequisites import TO_BUILD, Report, require
from sunk_lab.locks import alone
from sunk_lab.processes import environment, run

SOURCES: Final = Path(__file__).resolve().parents[3] / "go"
CONTAINERD: Final = "2.4.2"
RUNC: Final = "1.5.2"
CNI: Final = "1.9.1"
MULTICALL: Final = "kube-lab-bin"
PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
    "coredns",
    "provisioner",
)
_STILL_S: Final = 30.0
_LOOKS: Final = 4
"""So many counts, one each `_STILL_S`, say how fast it goes: early packages are small, late ones large."""
_FEW: Final = 50
"""Fewer packages in those looks say nothing: Go still fetches modules, or has most packages already."""
_LIMIT_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """One call of the Go compiler."""

    name: str
    version: str
    package: str
    """An import path with its version, or a folder of our own sources."""
    flags: tuple[str, ...] = ()
    has_cgo: bool = False
    title: str = field(default="", repr=False)
    """What it is called on the screen, where its name says little; makes no other program (`key`)."""

    def __str__(self) -> str:
        return f"{self.title or self.name} {self.version}"


def kubernetes_version(sources: Path = SOURCES) -> str:
    """Return the version of Kubernetes that go.mod asks for, without the v."""
    return (sources / "go.mod").read_text().split("k8s.io/kubernetes v", 1)[1].split()[0]


def targets(kubernetes: str) -> tuple[Target, ...]:
    """Return everything there is to compile, the longest first."""
    containerd = "github.com/containerd/containerd/v2/cmd"
    cni = "github.com/containernetworking/plugins/plugins"
    slim = ("-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", "-s -w")
    ours = ("-ldflags", f"-s -w {_stamps(kubernetes)}")
    return (
        Target(name=MULTICALL, title="Kubernetes", version=kubernetes, package=".", flags=ours, has_cgo=True),
        *(
            Target(name=name, version=CONTAINERD, package=f"{containerd}/{name}@v{CONTAINERD}", flags=slim)
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        Target(
            name="runc",
            version=RUNC,
            package=f"github.com/opencontainers/runc@v{RUNC}",
            flags=("-tags", "seccomp", "-ldflags", "-s -w"),
            has_cgo=True,
        ),
        *(
            Target(name=path.split("/")[1], version=CNI, package=f"{cni}/{path}@v{CNI}", flags=slim)
            for path in ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")
        ),
        Target(name="pause", version=kubernetes, package="./pause", flags=ours),
    )


def _stamps(kubernetes: str) -> str:
    """Return what ``go build`` alone would leave as v0.0.0-master; charts and clients read it."""
    major, minor, _ = kubernetes.split(".", 2)
    values = {"gitVersion": f"v{kubernetes}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{key}={value}" for package in packages for key, value in values.items())


def key(sources: Path = SOURCES) -> str:
    """Return the name of the folder that holds what *sources* and the versions above make on this machine."""
    digest = hashlib.sha256(
        repr((platform.machine(), PROGRAMS, targets(kubernetes_version(sources)))).encode()
    )
    for path in sorted(path for path in sources.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(sources)}\0".encode() + path.read_bytes() + b"\0")
    return f"{kubernetes_version(sources)}-{digest.hexdigest()[:12]}"


def build(cache: Path, report: Report) -> Path:
    """Return the folder of the programs; compile them first if this machine has not yet.

    Raises:
        LabError: A prerequisite is missing, or a program does not compile; names the log.
    """
    programs = cache / "kube" / key()
    if programs.is_dir():
        return programs
    require(TO_BUILD, report=report)
    compiler = go.find(cache, report)
    with alone(programs.with_name(f"{programs.name}.lock")):
        if not programs.is_dir():  # Another run may just have built them.
            _build(programs, compiler, report)
    return programs


def _build(programs: Path, compiler: Path, report: Report) -> None:
    began = time.monotonic()
    new = programs.with_name(f"{programs.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # Go's own cache keeps what a killed run had compiled.
    new.mkdir(parents=True)
    report(f"building Kubernetes {kubernetes_version()} from source, once: 8 to 13 minutes on two cores")
    longest, *others = targets(kubernetes_version())
    with ThreadPoolExecutor(2) as pool:  # While one links, on one core, the other compiles.
        jobs = [
            pool.submit(_compile, (longest,), new, compiler, report),
            pool.submit(_compile, tuple(others), new, compiler, report),
        ]
        for job in jobs:
            job.result()
    for name in PROGRAMS:
        (new / name).symlink_to(MULTICALL)
    new.rename(programs)
    report(f"built {1 + len(others)} programs in {time.monotonic() - began:.0f} s")


def _compile(some: tuple[Target, ...], folder: Path, compiler: Path, report: Report) -> None:
    for target in some:
        began = time.monotonic()
        report(f"compiling {target} …")
        log = folder.parent / "log" / f"{target.name}.log"
        counts: list[int] = []
        with ThreadPoolExecutor(1) as beside:
            total = beside.submit(_packages, target, compiler)
            for packages in _compiling(target, folder, compiler, log):
                counts.append(packages)
                text = progress(counts, total.result() if total.done() else 0)
                report(f"compiling {target} … {text}, {time.monotonic() - began:.0f} s")
        report(f"compiled {target}  {time.monotonic() - began:.0f} s")


def progress(counts: Sequence[int], total: int) -> str:
    """Return how far a compilation is, and how long it still takes where that can be told.

    Args:
        counts: How many packages were compiled, looked at each `_STILL_S` seconds.
        total: How many there are; 0: not known.
    """
    done, recent = counts[-1], counts[-_LOOKS:]
    if not total:
        return f"{done} packages"
    text = f"{done} of {total} packages"
    made = recent[-1] - recent[0]
    if made < _FEW or done >= total:
        return text
    minutes = math.ceil((total - done) / made * _STILL_S * (len(recent) - 1) / 60)
    return f"{text}, about {minutes} minute{'s' * (minutes != 1)} left"


def _packages(target: Target, compiler: Path) -> int:
    """Return how many packages the one long target has; 0 if Go cannot say."""
    if target.name != MULTICALL:
        return 0
    settings = {"CGO_ENABLED": "1", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    try:
        listed = run(compiler, "list", "-deps", target.package, cwd=SOURCES, env=settings, timeout_s=_LIMIT_S)
    except LabError:  # Then compiling it fails too, and says why.
        return 0
    return len(listed.splitlines())


def _compiling(target: Target, folder: Path, compiler: Path, log: Path) -> Iterator[int]:
    """Compile; every half minute yield how many packages are done."""
    log.parent.mkdir(parents=True, exist_ok=True)
    is_ours = target.package.startswith(".")
    where = ("build", "-o", str(folder / target.name)) if is_ours else ("install",)
    cgo = "1" if target.has_cgo else "0"
    began = time.monotonic()
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [str(compiler), *where, "-v", *target.flags, target.package],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=SOURCES if is_ours else "/",
            env=environment(
                {"GOBIN": str(folder), "CGO_ENABLED": cgo, "GOTOOLCHAIN": "local", "GOFLAGS": ""}
            ),
        ) as running,
    ):
        while time.monotonic() - began < _LIMIT_S:
            try:
                status = running.wait(_STILL_S)
            except subprocess.TimeoutExpired:
                yield sum(not line.startswith(b"go: ") for line in log.read_bytes().splitlines())
                continue
            if status:
                raise LabError(f"compiling {target} failed, see {log}: {_last_line(log)}")
            return
        running.kill()
    raise LabError(f"compiling {target} took more than an hour, see {log}")


def _last_line(log: Path) -> str:
    return log.read_text(errors="replace").strip().rpartition("\n")[2]
