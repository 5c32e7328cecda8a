"""The documents' example, a Pod with all GPUs of a node, on a real kubelet whose GPUs are made up.

The slurmd is a process with eight device files, the kubelet's Node says that it has eight of
``nvidia.com/gpu``; syncer, hook-gateway and pod-scheduler are processes. Of the example only the size, the
image and the scheduler's name are others: this machine has neither 96 CPUs nor 900 GiB.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sunk_events.nodesets import KubePodState
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = [
    pytest.mark.lab,
    pytest.mark.anyio,
    pytest.mark.nightly,
]

EXAMPLE: Final = Path(__file__).parents[2] / "docs/examples/full-node-gpu-pod.yaml"
CLUSTER: Final = "lab"
KUBE_NODE: Final = "node3"
GPUS: Final = 8
SMALLER: Final = {"cpu": "1", "memory": "100Mi", "nvidia.com/gpu": str(GPUS)}


@contextmanager
def service(name: str, folder: Path, settings: Mapping[str, str]) -> Generator[None]:
    """Run one of our services as a process."""
    module = f"sunk_{name}"
    environment = {f"{module.upper()}_{key}": value for key, value in settings.items()}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={"PATH": "/usr/bin:/bin", **environment},
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()


@contextmanager
def services(folder: Path, nats_url: str, slurm: HostSlurm, kubeconfig: Path) -> Generator[None]:
    """Run syncer, hook-gateway and pod-scheduler."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    (folder / "key").write_bytes(os.urandom(32))
    (folder / "token").write_text("t" * 32)
    bus = {"CLUSTER": CLUSTER, "NATS_URL": nats_url}
    ours = {"SLURM_URL": slurm.url, "SLURM_KEY_FILE": str(slurm.jwt_key), "HTTP_PORT": "0"}
    kube = {"KUBECONFIG": str(kubeconfig), "NAMESPACE": "default"}
    token = {"HTTP_PORT": port, "STATIC_TOKEN_FILE": str(folder / "token")}
    scheduler = {
        "HOOKS_URL": f"http://127.0.0.1:{port}",
        "KEY_FILE": str(folder / "key"),
        "GPU_TYPES": "NVIDIA_H100=h100",
    }
    with ExitStack() as stack:
        stack.enter_context(service("syncer", folder, bus | ours))
        stack.enter_context(service("hook_gateway", folder, bus | kube | token))
        stack.enter_context(service("pod_scheduler", folder, bus | kube | ours | scheduler))
        yield


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """One node of eight GPUs."""
    release: Release = request.param
    nodes = NodeRange(count=1, first_port=0, gpus=GPUS, gpu_types=("h100",))
    with running_slurm(release, nodes=nodes, more=("KillWait=30",)) as found:
        yield found


@pytest.fixture
def gpu_node(kube_lab: KubeLab) -> Generator[None]:
    """A Node that says it has eight H100."""

    def advertise(count: int | None, model: str | None) -> None:
        capacity = {"status": {"capacity": {"nvidia.com/gpu": None if count is None else str(count)}}}
        patch = ("patch", "node", KUBE_NODE, "--type=merge")
        kube_lab.kubectl(*patch, "--subresource=status", "-p", json.dumps(capacity))
        labels = {"metadata": {"labels": {"gpu.nvidia.com/model": model}}}
        kube_lab.kubectl(*patch, "-p", json.dumps(labels))

    advertise(GPUS, "NVIDIA_H100")
    yield
    advertise(None, None)


def example(name: str) -> dict[str, Any]:
    """Return the Pod of the documents, so small that this machine can run it."""
    pod = yaml.safe_load(EXAMPLE.read_text())
    pod["metadata"]["name"] = name
    pod["spec"]["schedulerName"] = "sunk-scheduler"
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    (container,) = pod["spec"]["containers"]
    limits = {name: SMALLER[name] for name in container["resources"]["limits"]}
    container |= {
        "image": "localhost/sunk-pause:1",
        "resources": {"requests": SMALLER, "limits": limits},
    }
    return pod


@asynccontextmanager
async def known_node(nats_url: str, slurm: HostSlurm) -> AsyncGenerator[None]:
    """Say on the bus, as a NodeSet's controller would, that the Slurm node is on that Node."""
    (name,) = slurm.node_names
    state = KubePodState(
        changed=datetime.now(UTC),
        pod=name,
        namespace="default",
        nodeset="gpu",
        kube_node=KUBE_NODE,
        uid=f"uid-{name}",
        phase="running",
        is_ready=True,
    )
    settings = BusSettings(url=nats_url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        view = StateView(bus, CLUSTER, KubePodState)
        async with following(view):
            await view.complete()
            await StateWriter(bus, view, fence=None).record(name, state, revision=0)
            yield


@pytest.mark.usefixtures("gpu_node")
async def test_the_documents_pod_of_a_whole_gpu_node_runs_with_all_its_gpus_and_alone(
    kube_lab: KubeLab, slurm: HostSlurm, tmp_path: Path
) -> None:
    def shown(pod: str, path: str) -> str:
        return kube_lab.kubectl("get", "pod", pod, "--ignore-not-found", "-o", f"jsonpath={{{path}}}")

    def job_of(pod: str) -> str:
        return slurm.exec("squeue", "-h", "-o", "%T %b %h", "-n", f"default/{pod}").strip()

    with NatsServer(tmp_path / "nats") as nats, ExitStack() as stack:
        async with known_node(nats.url, slurm):
            stack.enter_context(services(tmp_path, nats.url, slurm, kube_lab.kubeconfig))
            kube_lab.kubectl("apply", "-f", "-", input=json.dumps(example("whole")))
            await until(lambda: shown("whole", ".status.phase") == "Running")
            job = job_of("whole")
            kube_lab.kubectl("apply", "-f", "-", input=json.dumps(example("second")))
            await until(lambda: job_of("second").startswith("PENDING"))
            where = shown("whole", ".spec.nodeName"), shown("second", ".spec.nodeName")
            kube_lab.kubectl("delete", "pod", "whole")
            await until(lambda: shown("second", ".status.phase") == "Running")
            kube_lab.kubectl("delete", "pod", "second")
            await until(lambda: job_of("second") == "")

    assert where == (KUBE_NODE, "")
    assert job == f"RUNNING gres/gpu:h100:{GPUS} NO"
