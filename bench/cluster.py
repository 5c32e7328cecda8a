"""From a Kubernetes with images to a whole Slurm, by Helm; what an upgrade costs; how big the images are.

Results: ``cluster.install`` (``sunk_s``, ``slurm_s``, ``idle_s`` until sinfo shows every node idle,
``pods_mb`` resident on all Nodes), ``cluster.upgrade`` (``same_s`` with the same values, ``changed_s`` with
another setting of one service, ``restarted`` Pods), ``images.start`` (one line a service; seconds since its
process began: ``http_s`` until it answers, ``ready_s`` until it is ready, and the slowest, ``ready_max_s``;
``cpu_s`` of a processor by then, ``imports_s`` of Python alone), ``images.size`` (one line an image; ``mb``
unpacked, ``gzip_mb`` as in a registry).
"""

import argparse
import gzip
import json
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from cluster_starts import starts

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import Installation, images
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for

MB: Final = 1_000_000
BLOCK: Final = 1 << 20


class Counter:
    """A file that only counts what is written to it."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, content: bytes) -> int:
        """Count *content*."""
        self.size += len(content)
        return len(content)


def say(line: str) -> None:
    """Tell a person how far it is."""
    print(line, file=sys.stderr, flush=True)


def result(name: str, **values: object) -> None:
    """Print one result."""
    print(json.dumps({"name": name, **values}), flush=True)


def timed(deed: Callable[[], object]) -> float:
    """Return how long *deed* took, in seconds."""
    began = time.perf_counter()
    deed()
    return round(time.perf_counter() - began, 1)


def layer_sizes(content: IO[bytes]) -> tuple[int, int]:
    """Return how big a layer is, and how big compressed."""
    counter, plain = Counter(), 0
    with gzip.GzipFile(fileobj=counter, mode="wb", compresslevel=6) as packed:  # type: ignore[arg-type] - writes only
        while block := content.read(BLOCK):
            plain += packed.write(block)
    return plain, counter.size


def sizes(archive: Path) -> None:
    """Print the size of each image of *archive*; a layer that several have counts for each."""
    known: dict[str, tuple[int, int]] = {}
    with tarfile.open(archive) as tar:

        def member(name: str) -> IO[bytes]:
            found = tar.extractfile(name)
            if found is None:
                raise LabError(f"{archive} lacks {name}")
            return found

        manifest: list[dict[str, Any]] = json.load(member("manifest.json"))
        for image in manifest:
            for layer in image["Layers"]:
                if layer not in known:
                    known[layer] = layer_sizes(member(layer))
            plain, packed = (sum(known[layer][which] for layer in image["Layers"]) for which in (0, 1))
            name = image["RepoTags"][0].partition("/")[2]
            result("images.size", image=name, mb=round(plain / MB, 1), gzip_mb=round(packed / MB, 1))


def memory_mb(lab: KubeLab) -> float:
    """Return what the Pods of all Nodes have resident, once their kubelets know it of each that runs."""
    return wait_for("the memory of every Pod", lambda: _memory_mb(lab), 120)


def _memory_mb(lab: KubeLab) -> float | None:
    """Return what the Pods of all Nodes have resident; None: it is not known of all."""
    running = lab.kubectl("get", "pods", "-A", "--field-selector=status.phase=Running", "-o", "name")
    known: list[int] = []
    for node in lab.node_names():
        summary: dict[str, Any] = json.loads(
            lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary?only_cpu_and_memory=true")
        )
        known += [rss for pod in summary["pods"] if (rss := pod.get("memory", {}).get("rssBytes", 0))]
    return round(sum(known) / MB, 1) if len(known) >= len(running.split()) else None


def installed(lab: KubeLab) -> Installation:
    """Install both charts on *lab*, and print how long that took."""
    made = Installation(lab)
    made.make_namespaces()
    sunk_s = timed(made.install_sunk)
    slurm_s = timed(made.install_slurm)
    rest_s = timed(made.await_idle)
    idle_s = round(sunk_s + slurm_s + rest_s, 1)
    result(
        "cluster.install",
        nodes=len(made.nodes),
        sunk_s=sunk_s,
        slurm_s=slurm_s,
        idle_s=idle_s,
        pods_mb=memory_mb(lab),
    )
    return made


def upgraded(made: Installation) -> None:
    """Upgrade the Slurm cluster, and print how long that took and what was started again."""
    same_s = timed(made.install_slurm)
    before = made.uids("pod")
    values = made.values()
    changed = values | {"hookGateway": values["hookGateway"] | {"settings": {"RELEASE_WAIT_S": "5"}}}
    changed_s = timed(lambda: made.install_slurm(changed))
    restarted = sorted(name.rsplit("-", 2)[0] for name in made.uids("pod").keys() - before.keys())
    result("cluster.upgrade", same_s=same_s, changed_s=changed_s, restarted=restarted)


def main() -> None:
    """Print every result; the lab is gone afterwards."""
    parser = argparse.ArgumentParser(prog="bench cluster", description=__doc__)
    parser.add_argument("--sizes-only", action="store_true", help="no lab, only the images")
    parser.add_argument("--starts", type=int, default=3, help="how often each service is started again")
    arguments = parser.parse_args()
    config = from_environment()
    archives = images(config.cache, say)
    for archive in archives:
        sizes(archive)
    if arguments.sizes_only:
        return
    lab = KubeLab(config.number, folder=config.folder / "kube", cache=config.cache, report=say)
    if lab.is_up():
        raise LabError(f"lab {config.number} is up: ./task lab:down first, or set SUNK_LAB_NUMBER")
    try:
        lab.up(nodes=3)
        lab.load(*archives)
        made = installed(lab)
        starts(made, arguments.starts, result)
        upgraded(made)
    finally:
        lab.down()


if __name__ == "__main__":
    main()
