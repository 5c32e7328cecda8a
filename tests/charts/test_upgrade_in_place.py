"""Both releases upgraded from an earlier version and rolled back, under Pods and jobs of every kind.

The earlier one is the last whose services did not sign which job a Pod has.
"""

import json
import sys
import tarfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab import service_images
from sunk_lab.charts import helm_of, sunk_values
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import CHARTS, SUNK_NAMESPACE, Installation, images
from sunk_lab.processes import environment, run, wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import RELEASES, Release

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(2400)]
EARLIER: Final = "e16ff31"
JOB: Final = "sunk.coreweave.com/job"
GO: Final = "/var/spool/slurmd/go"
READY_S: Final = 300
CPUS: Final = 16
"""Each node has, as it says: enough for all Pods and jobs that are not to wait."""
ARCHIVE: Final = """
import pathlib, sys
from sunk_lab import service_images as made
print(made.version())
print(made.archive_of(list(made.SERVICES), pathlib.Path(sys.argv[1]), lambda _: None))
"""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of both charts, with the tag of its services' images."""

    charts: Path
    tag: str


class Cluster(Installation):
    """Both releases, of the version that was put last."""

    def values(self) -> dict[str, Any]:
        values = super().values()
        values["compute"]["nodes"]["cpu"]["slurm"]["cpus"] = CPUS
        return values

    def put(self, version: Version) -> None:
        """Install or upgrade both releases to *version*; what they made is ready afterwards."""
        sunk, slurm = sunk_values(replicas=1), self.values()
        sunk["nodesetController"]["image"]["tag"] = slurm["serviceImage"]["tag"] = version.tag
        for name, config, values in (
            ("sunk", helm_of(self.lab, SUNK_NAMESPACE), sunk),
            ("slurm", self.helm, slurm),
        ):
            is_there = any(found["name"] == name for found in config.list())
            act = config.upgrade if is_there else config.install
            act(version.charts / name, name, values, wait="watcher", timeout=READY_S)

    def roll_back(self) -> None:
        """Roll both releases back to what they were before."""
        self.helm.rollback("slurm", wait="watcher", timeout=READY_S)
        helm_of(self.lab, SUNK_NAMESPACE).rollback("sunk", wait="watcher", timeout=READY_S)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the Pods of users by name, but for that of `see_on`; Kubernetes defines their type."""
        items = json.loads(self.lab.kubectl("get", "pods", "-o", "json"))["items"]
        return {one["metadata"]["name"]: one for one in items if one["metadata"]["name"] != "later"}

    def how_they_are(self) -> dict[str, tuple[str, str, str, bool]]:
        """Return of each Pod of users: uid, phase, Node, and whether it is to go."""
        return {
            name: (
                pod["metadata"]["uid"],
                pod["status"]["phase"],
                pod["spec"].get("nodeName", ""),
                "deletionTimestamp" in pod["metadata"],
            )
            for name, pod in self.pods().items()
        }

    def placed(self) -> dict[str, int]:
        """Return the job that each bound Pod's annotation names."""
        bound = {name: pod for name, pod in self.pods().items() if "nodeName" in pod["spec"]}
        return {name: json.loads(pod["metadata"]["annotations"][JOB])["job"] for name, pod in bound.items()}

    def jobs(self) -> set[str]:
        """Return id, user, state and restarts of every job that is not over."""
        return set(self.login("squeue -h -r -o '%A %u %T'").splitlines())

    def number(self) -> int:
        """Return the number of a job that is submitted and cancelled now: each one uses up one."""
        job = self.login("sbatch --parsable --mem=100 --hold --output=/dev/null --wrap=true").strip()
        self.login(f"scancel {job}")
        return int(job)

    def tags(self) -> set[str]:
        """Return the versions of the pod-schedulers that are there."""
        found = (one for one in self.items("pod") if one["metadata"]["name"].startswith("slurm-scheduler-"))
        return {str(one["spec"]["containers"][0]["image"]).rpartition(":")[2] for one in found}

    def see_on(self) -> None:
        """See that the services of now have gone on: a Pod of now has run."""
        self.place("later", "true")
        template = ("get", "pod", "later", "-o", "jsonpath={.status.phase}")
        wait_for("a Pod that came later", lambda: self.lab.kubectl(*template) == "Succeeded", READY_S)
        self.lab.kubectl("delete", "pod", "later")
        wait_for("its job to be over", lambda: not any("COMPLETING" in job for job in self.jobs()), 120)

    def place(self, name: str, *args: str, **annotations: str) -> None:
        """Apply a Pod that Slurm is to place."""
        made = template(self.slurm, *args, **annotations)
        made["metadata"] |= {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "v1", "kind": "Pod", **made})

    def place_gang(self, name: str, *args: str, **annotations: str) -> None:
        """Apply a Job of two Pods that Slurm is to place together."""
        spec = {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": template(self.slurm, *args, **annotations),
        }
        metadata = {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def template(slurm: Release, *args: str, **annotations: str) -> dict[str, Any]:
    """Return metadata and spec of a Pod that runs *args* in the image of *slurm*."""
    container = {
        "name": "main",
        "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{slurm.version}",
        "args": list(args),
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    spec = {
        "schedulerName": "slurm-slurm",
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
        "containers": [container],
    }
    asked = {f"sunk.coreweave.com/{key}": text for key, text in annotations.items()}
    return {"metadata": {"annotations": asked}, "spec": spec}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, Path]:
    """The earlier version, and the archive of its services' images, made from the code as it was."""
    source = Path(__file__).parents[2]
    git = ("git", "-C", source)
    try:
        run(*git, "cat-file", "-e", f"{EARLIER}^{{commit}}")
    except LabError:
        pytest.skip(f"git has no commit {EARLIER} here: the history is cut short, or this is no clone")
    folder = tmp_path_factory.mktemp("earlier")
    packed = folder / "source.tar"
    run(*git, "archive", f"--output={packed}", EARLIER)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    path = f"{source / '.tools/bin'}:{environment(None).get('PATH', '')}"
    variables = {"PYTHONPATH": str(folder / "lab/src"), "PATH": path}
    # The code of then makes its own images.
    told = run(
        *(sys.executable, "-c", ARCHIVE, from_environment().cache),
        env=variables,
        timeout_s=600,
    )
    tag, images_of_then = told.split()
    return Version(charts=folder / "helm", tag=tag), Path(images_of_then)


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest, earlier: tuple[Version, Path]) -> Generator[Cluster]:
    """Both releases of the earlier version on two Nodes, with the images of both."""
    version, archive = earlier
    with reserved_lab() as lab:
        lab.up(nodes=2)
        made = Cluster(lab, nodes=("node1", "node2"), slurm=request.param)
        lab.load(archive, *images(from_environment().cache, lambda _line: None, made.slurm))
        made.make_namespaces()
        made.put(version)
        made.await_idle()
        yield made


def test_an_upgrade_from_an_earlier_version_and_a_rollback_end_nothing_and_submit_nothing_twice(
    cluster: Cluster,
) -> None:
    wrap = f"--mem=100 --output=/dev/null --wrap='while [ ! -e {GO} ]; do sleep 0.2; done'"
    job = cluster.login(f"cd /tmp; sbatch --parsable --uid=ada {wrap}").strip()
    cluster.place("bound", "sleep", "3600")
    cluster.place_gang("gang", "sleep", "3600")

    def are_running() -> bool:
        return phases(cluster) == ["Running"] * 3 and f"{job} ada RUNNING" in cluster.jobs()

    wait_for("a Pod, a gang and a job to run", are_running, READY_S)
    both = "sbatch --parsable --mem=100 -N2 --exclusive --output=/dev/null --wrap=true"
    waiting = cluster.login(both).strip()
    cluster.place("waiting", "sleep", "3600", exclusive="none")
    cluster.place_gang("later-gang", "sleep", "3600", exclusive="none")
    wait_for("six jobs, three of which wait", lambda: len(cluster.jobs()) == 6, READY_S)
    assert sum("PENDING" in one for one in cluster.jobs()) == 3
    before = cluster.how_they_are(), cluster.placed(), cluster.jobs()
    number, earlier = cluster.number(), cluster.tags()

    cluster.put(Version(charts=CHARTS, tag=service_images.version()))
    wait_for("the new version alone", lambda: cluster.tags() == {service_images.version()}, 60)
    cluster.see_on()
    assert (cluster.how_they_are(), cluster.placed(), cluster.jobs()) == before
    assert cluster.number() == number + 2  # That of `see_on`, and this one: nothing else was submitted.

    # Earlier code reads what the new version writes. No gang: one node is drained by now, to be updated.
    cluster.place("bound-by-new", "sleep", "3600")
    wait_for("four Pods to run", lambda: phases(cluster).count("Running") == 4, READY_S)
    cluster.place("waiting-by-new", "sleep", "3600", exclusive="none")
    wait_for("eight jobs, four of which wait", lambda: len(cluster.jobs()) == 8, READY_S)
    assert sum("PENDING" in one for one in cluster.jobs()) == 4
    by_both = cluster.how_they_are(), cluster.placed(), cluster.jobs()

    cluster.roll_back()
    wait_for("the earlier version alone", lambda: cluster.tags() == earlier, 60)
    cluster.see_on()
    assert (cluster.how_they_are(), cluster.placed(), cluster.jobs()) == by_both
    assert cluster.number() == number + 6  # Two that the new version placed, and two as before.

    # It ends them, too.
    cluster.lab.kubectl("delete", "pod", "bound-by-new", "waiting-by-new")
    wait_for(
        "none of the new version's Pods and jobs to be left",
        lambda: (cluster.how_they_are(), cluster.placed(), cluster.jobs()) == before,
        READY_S,
    )

    # What waited is placed by the jobs that it had.
    pending = {one.split()[0] for one in before[2] if "PENDING" in one} - {waiting}
    cluster.login(f"scancel {waiting}")
    (where,) = cluster.login(f"squeue -h -j {job} -o %N").split()
    cluster.kubectl("exec", where, "-c", "slurmd", "--", "touch", GO)
    wait_for("the job in sacct", lambda: "COMPLETED" in cluster.login(f"sacct -Xn -j {job} -o state"), 120)
    cluster.lab.kubectl("delete", "job", "gang")
    cluster.lab.kubectl("delete", "pod", "bound")
    wait_for("the waiting Pod to run", lambda: "waiting" in cluster.placed(), READY_S)
    cluster.lab.kubectl("delete", "pod", "waiting")
    wait_for("the waiting gang to run", lambda: len(cluster.placed()) == 2, READY_S)
    assert {str(job) for job in cluster.placed().values()} < pending
    cluster.lab.kubectl("delete", "job", "later-gang")


def phases(cluster: Cluster) -> list[str]:
    """Return the phase of each Pod of users."""
    return [phase for _, phase, _, _ in cluster.how_they_are().values()]


def test_a_further_upgrade_finds_every_node_idle(cluster: Cluster) -> None:
    cluster.put(Version(charts=CHARTS, tag=service_images.version()))
    wait_for("all nodes to be updated and idle", lambda: nodes(cluster) == ["idle", "idle"], 600)
    assert cluster.jobs() == set()
    with pytest.raises(helm.HelmError):
        cluster.helm.rollback("slurm", version=99)


def nodes(cluster: Cluster) -> list[str]:
    """Return the state of each node."""
    return cluster.login("sinfo -h -N -p cpu -o %T").split()
