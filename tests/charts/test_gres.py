"""From what a Node says of its GPUs to a node of Slurm that gives them to jobs, with made-up devices."""

import subprocess
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest
from msgspec.structs import replace

from sunk_kube.objects import Node
from sunk_kube.testing import node, nodeset
from sunk_lab.charts import render
from sunk_lab.processes import wait_for
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.testing import slurm_lab
from sunk_nodeset_controller.node_controller.gres import gres_conf, read_gres
from sunk_nodeset_controller.nodesets.gpus import GpuRules, gpus_of
from sunk_slurm.gres import gpu_type

__all__ = ["slurm_lab"]

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
LIBRARY: Final = CHART / "files/scripts/lib.sh"
TYPES: Final = {"H100_NVLINK_80GB": "h100"}
COUNT: Final = 2
VALUES: Final[dict[str, Any]] = {"clusterName": "lab", "compute": {"nodes": {"gpu": {}}}}
BUSES: Final = ("0000:00:01.0", "0000:00:02.0")
DRIVER: Final = "NVIDIA H100 80GB HBM3"


def kube_node() -> Node:
    made = node(labels={"gpu.nvidia.com/model": "H100_NVLINK_80GB"})
    return replace(made, status=replace(made.status, capacity={"nvidia.com/gpu": str(COUNT)}))


def announced() -> str:
    """Return what the nodeset-controller gives slurmd."""
    made = nodeset()
    found = gpus_of(kube_node(), replace(made.spec, gpus="FromNode", gpu_types=TYPES), GpuRules())
    assert str(found) == f"gpu:h100:{COUNT}"
    return str(found)


def driver_files(driver: str, model: str = DRIVER) -> str:
    """Return what writes the files by which NVIDIA's driver tells of its GPUs below *driver*."""
    lines: list[str] = []
    for index, bus in enumerate(BUSES):
        told = f"Model: \t {model}\\nGPU UUID: \t GPU-{index}\\n"
        told += f"Bus Location: \t {bus}\\nDevice Minor: \t {index}\\n"
        lines += [f"mkdir -p {driver}/gpus/{bus}", f"printf '{told}' >{driver}/gpus/{bus}/information"]
    return "\n".join(lines) + "\n"


def devices() -> str:
    """Return what gives one slurmd a ``/dev`` of its own, in which the GPUs have files."""
    folder = "/lab/gpu"
    lines = [f"mount -t tmpfs tmpfs {folder}", f"mkdir {folder}/shm", f"ln -s /proc/self/fd {folder}/fd"]
    lines += [f"cp -a /dev/{name} {folder}/{name}" for name in ("null", "zero", "full", "random", "urandom")]
    lines += [f"mknod {folder}/nvidia{index} c 1 3" for index in range(COUNT)]
    return "\n".join((*lines, f"mount --bind {folder} /dev")) + "\n"


def cpus_of_buses() -> str:
    """Return what says which CPUs are near each GPU, as Linux does of every device."""
    folder = "/sys/bus/pci/drivers"
    lines = [f"mount -t tmpfs tmpfs {folder}"]
    for bus in BUSES:
        lines += [f"mkdir -p {folder}/nvidia/{bus}", f"echo 0-3 >{folder}/nvidia/{bus}/local_cpulist"]
    return "\n".join(lines) + "\n"


def runs_a_job_with_a_gpu(slurm: HostSlurm, name: str, prepare: str) -> None:
    """Start a slurmd as a compute Pod does, and a job there that asks for a GPU of the type."""
    library = slurm.write_file("lib.sh", LIBRARY.read_text())
    start = f"export SUNK_NODE_GRES={announced()}\nsource {library}\ngres=$(node_gres)"
    slurm.add_node(name, prepare=devices() + prepare + start)

    def words() -> dict[str, str]:
        shown = slurm.exec("scontrol", "--oneliner", "show", "node", name)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    wait_for("the node to be up", lambda: words()["State"].startswith("IDLE"), 60, 0.1)
    assert "INVALID" not in words()["State"]
    assert words()["Gres"].partition("(")[0] == f"gpu:h100:{COUNT}"
    job = ("srun", f"--nodelist={name}", "--gres=gpu:h100:1", "printenv", "CUDA_VISIBLE_DEVICES")
    assert slurm.exec(*job).strip() == "0"


def configure(slurm: HostSlurm, gres: str) -> None:
    slurm.write_file("gres.conf", gres)
    slurm.exec("scontrol", "reconfigure")


@pytest.mark.lab
def test_slurm_has_the_gpus_of_a_node_by_the_charts_own_gres_conf(slurm_lab: HostSlurm) -> None:
    objects = render(helm.Chart.load(CHART), VALUES, name="slurm", namespace="slurm")
    configure(slurm_lab, objects["ConfigMap", "slurm-slurm-conf"]["data"]["gres.conf"])
    machine = "mount -t tmpfs tmpfs /proc/driver\n" + driver_files("/proc/driver/nvidia") + cpus_of_buses()

    runs_a_job_with_a_gpu(slurm_lab, "detected", machine)


@pytest.mark.lab
def test_slurm_has_the_gpus_of_a_node_by_the_generated_gres_conf(slurm_lab: HostSlurm) -> None:
    wanted = (read_gres("nvidia.com/gpu=gpu:/dev/nvidia"),)
    labels = GpuRules().labels
    configure(slurm_lab, gres_conf(wanted, labels, {"listed": kube_node()}, lambda _name: TYPES))

    runs_a_job_with_a_gpu(slurm_lab, "listed", "export SUNK_NODE_GRES_LISTED=true\n")


def node_gres(folder: Path, devices: int, model: str = DRIVER, **environment: str) -> tuple[str, str]:
    """Return what slurmd announces on a made-up machine, and what stands in the Pod's log."""
    (folder / "slurm.conf").touch()  # What sackd has fetched: no gres.conf.
    for index in range(devices):
        (folder / f"nvidia{index}").touch()
    told = {
        "SUNK_NODE_GRES": "gpu:h100:2",
        "SUNK_GPU_FILES": f"{folder}/nvidia",
        "SUNK_GPU_DRIVER": f"{folder}/driver",
        "SLURM_CONF": f"{folder}/slurm.conf",
        "PATH": "/usr/bin:/bin",
    }
    script = f"set -euo pipefail\n{driver_files(f'{folder}/driver', model)}source {LIBRARY}\nnode_gres"
    ran = subprocess.run(
        ["bash", "-c", script], env=told | environment, capture_output=True, text=True, check=True
    )
    return ran.stdout, ran.stderr


@pytest.mark.parametrize(
    ("devices", "given", "gres"),
    [
        (2, {}, "gpu:h100:2"),
        (2, {"SUNK_NODE_GRES": "gpu:2"}, "gpu:2"),
        (8, {}, "gpu:h100:2"),
        (0, {"SUNK_GRES": "gpu:hopper:8"}, "gpu:hopper:8"),
        (2, {"SUNK_NODE_GRES": ""}, ""),
        (2, {"SUNK_NODE_CONF": "Weight=2 gres=gpu:1"}, ""),
        (
            2,
            {"model": "NVIDIA L4", "SUNK_NODE_GRES_LISTED": "true"},
            "gpu:h100:2",
        ),
    ],
    ids=["seen", "no type", "more", "by hand", "nothing read", "a line of the values", "listed"],
)
def test_a_slurmd_that_sees_the_gpus_of_its_node_announces_them(
    tmp_path: Path, devices: int, given: dict[str, Any], gres: str
) -> None:
    assert node_gres(tmp_path, devices, **given) == (gres, "")


@pytest.mark.parametrize(
    "driver",
    [
        *("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200", "NVIDIA B200", "NVIDIA L40S"),
        *("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB", "Tesla T4"),
        *("Tesla V100-SXM2-32GB", "Tesla V100-DGXS-32GB", "Tesla P100-PCIE-16GB", "NVIDIA RTX A6000"),
        *(
            "NVIDIA H20-3e",
            "NVIDIA A40-48Q",
            "NVIDIA A100-4-20C",
            "NVIDIA T4-2B4",
            "NVIDIA L40S-48C",
            "NVIDIA A100-PG509-200",
            "NVIDIA PG506-232",
        ),
    ],
)
def test_the_label_of_gpu_feature_discovery_needs_no_entry(tmp_path: Path, driver: str) -> None:
    """It is the driver's name with hyphens for spaces."""
    model = gpu_type(driver.replace(" ", "-"), {})

    assert node_gres(tmp_path, 2, driver, SUNK_NODE_GRES=f"gpu:{model}:2") == (f"gpu:{model}:2", "")


@pytest.mark.parametrize(
    ("devices", "model", "why"),
    [
        (0, DRIVER, "the Node has gpu:h100:2, and this container has 0 of its devices"),
        (1, DRIVER, "and this container has 1 of its devices"),
        (2, "NVIDIA L4", "and the driver knows 0 GPUs of that name"),
    ],
)
def test_a_slurmd_that_does_not_find_them_announces_none_and_says_why(
    tmp_path: Path, devices: int, model: str, why: str
) -> None:
    gres, said = node_gres(tmp_path, devices, model)

    assert gres == ""
    assert why in said
    assert "slurmd does not announce them" in said
