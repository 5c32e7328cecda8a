"""The bus of both charts grows from one server to three; a job runs, and another waits for its lock."""

import json
from collections.abc import Generator
from typing import Any, Final

import helm_python as helm
import pytest
import yaml

from sunk_lab.charts import helm_of, sunk_values
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import CHARTS, SUNK_NAMESPACE, Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
READY_S: Final = 600
SERVERS: Final = 3
GO: Final = "/var/spool/slurmd/go"
GONE: Final = "/gone"
JOB: Final = f"while [ ! -e {GO} ]; do sleep 0.2; done"
EXAMPLE: Final[dict[str, Any]] = yaml.safe_load((CHARTS / "sunk/examples/high-availability.yaml").read_text())
GROWTH: Final = "app.kubernetes.io/name=sunk-nats-growth"
READ: Final = """
import asyncio, hashlib, json, sys, nats
async def main(password, until):
    who = dict(user="admin", password=password, inbox_prefix=b"_INBOX.admin")
    client = await nats.connect("nats://sunk-nats:4222", **who)
    js, found = client.jetstream(timeout=20), {}
    for info in await js.streams_info():
        name, last = info.config.name, info.state.last_seq
        digest = hashlib.sha256()
        for seq in range(1, min(until.get(name, last), last) + 1):
            if name.startswith("SUNK_EV"):
                message = await js.get_msg(name, seq=seq)
                digest.update(f"{seq} {message.subject} ".encode() + message.data)
        found[name] = [last, info.config.num_replicas, digest.hexdigest()]
    print(json.dumps(found))
asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""
"""Prints of each stream: last sequence, replicas, and the digest of its facts up to a sequence."""


class Cluster(Installation):
    """Both releases, of which that of the Kubernetes cluster has other values of the bus each time."""

    def upgrade_sunk(self, *, wait: bool = True, **nats: Any) -> None:  # noqa: ANN401 - values are free-form.
        values = sunk_values(replicas=1)
        values["nats"] |= nats
        helm_of(self.lab, SUNK_NAMESPACE).upgrade(
            CHARTS / "sunk", "sunk", values, wait="watcher" if wait else "hookOnly", timeout=READY_S
        )

    def grow(self) -> None:
        """Give the first command of the two."""
        self.upgrade_sunk(wait=False, growing=True, **THREE)

    def await_copy(self) -> None:
        """Wait for what the README waits for."""

        def is_complete() -> bool:
            found = json.loads(self.sunk("get", "jobs", "-l", GROWTH, "-o", "json"))["items"]
            return bool(found) and all(one.get("status", {}).get("succeeded") for one in found)

        wait_for("the copy to be complete", is_complete, READY_S)

    def sunk(self, *args: str) -> str:
        return self.lab.kubectl("-n", SUNK_NAMESPACE, *args)

    def streams(self, until: dict[str, int]) -> dict[str, list[Any]]:
        """Return what `READ` prints."""
        secret = json.loads(self.sunk("get", "secret", "sunk-nats-users", "-o", "json"))
        password = self.sunk(
            *("get", "secret", "sunk-nats-users", "-o", "go-template={{.data.admin | base64decode}}")
        )
        assert "admin" in secret["data"]
        words = ("exec", "deployment/sunk-nodeset-controller", "--", "python3", "-c", READ)
        return json.loads(self.sunk(*words, password, json.dumps(until)))

    def volume_of_first(self) -> list[str]:
        """Return what is in the volume of the first server, by a Pod next to it: its image has no shell."""
        found = json.loads(self.sunk("get", "statefulset", "sunk-nats", "-o", "json"))
        (init,) = found["spec"]["template"]["spec"]["initContainers"]
        container = {
            "name": "look",
            "image": init["image"],
            "command": ["python3", "-c", "import os; print(*sorted(os.listdir('/data')))"],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        spec = {
            "nodeName": self.servers()["sunk-nats-0"],
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],  # Its Node may still be locked.
            "containers": [container],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-sunk-nats-0"}}],
        }
        metadata = {"name": "look", "namespace": SUNK_NAMESPACE}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        wait_for("a look", lambda: "Completed" in self.sunk("get", "pod", "look"), 60)
        seen = self.sunk("logs", "look").split()
        self.sunk("delete", "pod", "look")
        return seen

    def revision(self) -> int:
        """Return the newest revision of the release."""
        return int(helm_of(self.lab, SUNK_NAMESPACE).status("sunk")["revision"])

    def roll_back(self, revision: int) -> None:
        helm_of(self.lab, SUNK_NAMESPACE).rollback("sunk", version=revision, wait="hookOnly")

    def answers(self) -> bool:
        """Return whether three servers are there and serve."""
        try:
            return len(self.servers()) == SERVERS and bool(self.streams({}))
        except LabError:
            return False

    def first_refuses(self) -> bool:
        """Return whether the first server does not start, because its volume is of three."""
        if list(self.servers()) != ["sunk-nats-0"]:
            return False
        try:
            return "three servers have used it" in self.sunk("logs", "sunk-nats-0", "-c", "store")
        except LabError:  # It has not said anything yet.
            return False

    def jobs(self) -> dict[str, str]:
        """Return the state of each job."""
        rows = (line.split() for line in self.login("squeue -h -o '%A %T'").splitlines())
        return {row[0]: row[1] for row in rows}

    def servers(self) -> dict[str, str]:
        """Return the Node of each NATS server."""
        label = "app.kubernetes.io/name=sunk-nats"
        items = json.loads(self.sunk("get", "pods", "-l", label, "-o", "json"))["items"]
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in items}


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    """Both releases on three Nodes; a job runs, and another waits for its lock."""
    with reserved_lab() as lab:
        made = Cluster(lab, nodes=("node1", "node2"))
        lab.up(nodes=3)
        install(made, from_environment().cache, lambda _line: None)
        yield made


class Jobs:
    """A job that runs, and one whose Node has a Pod that does not go."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # The lock deletes it, and it takes its time.
        container = {
            "name": "main",
            "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{cluster.slurm.version}",
            "command": ["bash", "-c", f"trap : TERM; while [ ! -e {GONE} ]; do sleep 0.2; done"],
        }
        spec = {"nodeName": "node2", "terminationGracePeriodSeconds": 3600, "containers": [container]}
        metadata = {"name": "stays", "namespace": "default"}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        wait_for("a Pod on node2", lambda: "Running" in cluster.lab.kubectl("get", "pod", "stays"), 60)
        nodes = {node["spec"]["nodeName"]: node["metadata"]["name"] for node in self._slurmds()}
        submit = "cd /tmp; sbatch --parsable --mem=100 --output=/dev/null --exclusive"
        self.runs = cluster.login(f"{submit} -w {nodes['node1']} --wrap='{JOB}'").strip()
        self.waits = cluster.login(f"{submit} -w {nodes['node2']} --wrap='{JOB}'").strip()
        wait_for("a job to run", lambda: cluster.jobs()[self.runs] == "RUNNING", 120)
        self.began = self.start_of(self.runs)
        wait_for("node2 to be pending", lambda: self.lock("node2") == "pending", 120)

    def _slurmds(self) -> list[dict[str, Any]]:
        return [pod for pod in self._cluster.items("pod") if pod["metadata"]["name"].startswith("cpu-")]

    def start_of(self, job: str) -> str:
        return self._cluster.login(f"squeue -h -j {job} -o %S").strip()

    def lock(self, node: str) -> str:
        found = json.loads(self._cluster.lab.kubectl("get", "node", node, "-o", "json"))
        return found["metadata"].get("annotations", {}).get("sunk.coreweave.com/lock", "")


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Jobs:
    return Jobs(cluster)


THREE: Final[dict[str, Any]] = {"replicas": 3, "affinity": EXAMPLE["nats"]["affinity"]}


def test_three_servers_without_the_copy_are_refused_with_the_way(cluster: Cluster) -> None:
    with pytest.raises(helm.HelmError, match=r"must be copied to the three. Upgrade with nats\.growing=true"):
        cluster.upgrade_sunk(**THREE)
    assert list(cluster.servers()) == ["sunk-nats-0"]


def test_a_growth_that_is_given_up_leaves_the_one_server_with_all_that_it_had(
    cluster: Cluster, jobs: Jobs
) -> None:
    before = cluster.streams({})

    cluster.grow()
    cluster.await_copy()
    assert len(cluster.servers()) == 3
    cluster.upgrade_sunk(replicas=1)

    wait_for("one server", lambda: list(cluster.servers()) == ["sunk-nats-0"], 120)
    after = cluster.streams({name: row[0] for name, row in before.items()})
    assert {name: row[2] for name, row in after.items()} == {name: row[2] for name, row in before.items()}
    assert all(after[name][0] >= row[0] for name, row in before.items())
    assert cluster.jobs()[jobs.runs] == "RUNNING"
    assert cluster.sunk("get", "jobs", "-o", "name") == ""
    assert cluster.volume_of_first() == ["jetstream"]


def test_the_bus_grows_whatever_breaks_off_and_no_fact_and_no_job_is_lost(
    cluster: Cluster, jobs: Jobs
) -> None:
    before = cluster.streams({})
    cluster.grow()

    def copies() -> bool:
        try:
            return "stream" in cluster.sunk("logs", "-l", GROWTH)
        except LabError:
            return False

    wait_for("the copy to be under way", copies, READY_S)
    cluster.sunk("delete", "pod", "-l", GROWTH, "--wait=false")
    cluster.sunk("delete", "pod", "sunk-nats-1", "--wait=false")
    cluster.await_copy()
    cluster.sunk("delete", "pod", "sunk-nats-0")
    cluster.sunk("delete", "job", "-l", GROWTH)
    with pytest.raises(helm.HelmError, match="the streams are not copied to the three servers yet"):
        cluster.upgrade_sunk(**THREE)
    cluster.grow()  # Repeated.
    cluster.await_copy()

    cluster.upgrade_sunk(**THREE)

    assert cluster.jobs()[jobs.runs] == "RUNNING"
    assert len(set(cluster.servers().values())) == 3
    after = cluster.streams({name: row[0] for name, row in before.items()})
    assert {name: after[name][2] for name in before} == {name: row[2] for name, row in before.items()}
    assert all(after[name][0] >= row[0] for name, row in before.items())
    assert {row[1] for row in after.values()} == {3}


def test_the_services_go_on_with_three_servers_and_the_job_gets_its_lock(
    cluster: Cluster, jobs: Jobs
) -> None:
    assert (cluster.jobs()[jobs.runs], jobs.start_of(jobs.runs)) == ("RUNNING", jobs.began)
    cluster.install_slurm(cluster.values() | {"nats": {"replicas": 3}})

    assert cluster.jobs()[jobs.waits] != "RUNNING"  # The Pod is there; its prolog may have ended meanwhile.

    cluster.lab.kubectl("exec", "stays", "--", "touch", GONE)

    wait_for("the job that waited to run", lambda: cluster.jobs()[jobs.waits] == "RUNNING", READY_S)
    assert jobs.lock("node2") in {"locked", "locked_strict"}
    wait_for("no drain to be left", lambda: cluster.drains() == {}, 120)
    for name in ("node1", "node2"):
        (pod,) = [
            one["metadata"]["name"]
            for one in cluster.items("pod")
            if one["metadata"]["name"].startswith("cpu-") and one["spec"]["nodeName"] == name
        ]
        cluster.kubectl("exec", pod, "-c", "slurmd", "--", "touch", GO)
    wait_for("both jobs to end", lambda: cluster.jobs() == {}, 120)


def test_the_former_streams_stay_until_they_are_removed(cluster: Cluster) -> None:
    assert cluster.volume_of_first() == ["jetstream", "standalone"]


def test_a_rollback_to_one_server_is_refused_by_that_server_and_three_go_on_where_they_were(
    cluster: Cluster,
) -> None:
    before = cluster.streams({})
    revision = cluster.revision()
    cluster.roll_back(1)
    wait_for("the one server to refuse", cluster.first_refuses, READY_S)

    cluster.roll_back(revision)

    wait_for("three servers that answer", cluster.answers, READY_S)
    after = cluster.streams({name: row[0] for name, row in before.items()})
    assert {name: after[name][2] for name in before} == {name: row[2] for name, row in before.items()}
