"""The lab's Kubernetes, for real."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sunk_lab.errors import LabError
from sunk_lab.kube import images
from sunk_lab.kube.existing import ExistingKube
from sunk_lab.kube.lab import KubeLab
from sunk_lab.kube.testing import remains
from sunk_lab.processes import Processes, environment, run, wait_for

pytestmark = pytest.mark.lab


def ready(lab: KubeLab) -> dict[str, bool]:
    """Return whether each Node is Ready, by name."""
    found: dict[str, Any] = json.loads(lab.kubectl("get", "nodes", "-o", "json"))
    return {
        node["metadata"]["name"]: any(
            (condition["type"], condition["status"]) == ("Ready", "True")
            for condition in node["status"]["conditions"]
        )
        for node in found["items"]
    }


def pids(lab: KubeLab) -> dict[str, int | None]:
    return {process.name: process.pid for process in lab.status()}


def test_every_node_is_ready_and_says_the_version_it_was_built_from(kube_lab: KubeLab) -> None:
    versions = kube_lab.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")

    assert ready(kube_lab) == dict.fromkeys(("node1", "node2", "node3"), True)
    assert set(versions.split()) == {"v1.36.3"}


def test_a_pod_runs_and_the_machine_reaches_it(kube_lab: KubeLab) -> None:
    wait_for("the ServiceAccount", lambda: kube_lab.kubectl("get", "serviceaccount", "default"))
    kube_lab.kubectl("run", "walker", f"--image={images.PAUSE}", "--restart=Never")
    kube_lab.kubectl("wait", "--for=condition=Ready", "--timeout=180s", "pod/walker")

    address = kube_lab.kubectl("get", "pod", "walker", "-o", "jsonpath={.status.podIP}")

    with socket.socket() as probe:  # Refused, not unreachable: the address answers, nobody listens.
        probe.settimeout(5)
        assert probe.connect_ex((address, 1)) == 111
    kube_lab.kubectl("delete", "pod", "walker", "--wait", "--timeout=180s")


def address_of(name: str, server: str) -> str:
    """Ask a DNS server for an A record; a library would ask the machine's."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(2)
        client.sendto(
            struct.pack(">6H", 1, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1), (server, 53)
        )
        return socket.inet_ntoa(client.recv(512)[-4:])


def test_names_of_services_resolve_through_the_dns_service(kube_lab: KubeLab) -> None:
    network = kube_lab.network

    def resolves() -> bool:
        found = address_of("kubernetes.default.svc.cluster.local", network.dns_service)
        return found == network.api_service

    assert wait_for("DNS", resolves)


def test_an_existing_cluster_is_used_and_left_as_it_is(
    kube_lab: KubeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(kube_lab.programs), prepend=":")
    existing = ExistingKube(kube_lab.kubeconfig)
    before = pids(kube_lab)

    existing.up(nodes=3)
    existing.down()

    assert pids(kube_lab) == before
    with pytest.raises(LabError, match=r"99 nodes are needed, the cluster of .* has \d"):
        existing.up(nodes=99)


def test_a_second_up_starts_nothing_again(kube_lab: KubeLab) -> None:
    before = pids(kube_lab)

    kube_lab.up(nodes=3)

    assert pids(kube_lab) == before


def test_a_killed_node_is_missed_and_comes_back_when_it_is_started(kube_lab: KubeLab) -> None:
    kube_lab.kill_node("node3")
    wait_for("node3 to be missed", lambda: not ready(kube_lab)["node3"])

    kube_lab.start_node("node3")

    wait_for("node3 to be Ready", lambda: ready(kube_lab)["node3"])


def test_a_node_whose_cable_is_cut_is_missed_until_it_is_joined(kube_lab: KubeLab) -> None:
    kube_lab.cut_node("node2")
    wait_for("node2 to be missed", lambda: not ready(kube_lab)["node2"])

    kube_lab.join_node("node2")

    wait_for("node2 to be Ready", lambda: ready(kube_lab)["node2"])


def test_a_node_can_be_added_to_a_running_lab(kube_lab: KubeLab) -> None:
    kube_lab.start_node("node4")
    wait_for("node4 to be Ready", lambda: ready(kube_lab).get("node4"))

    assert kube_lab.node_names() == ["node1", "node2", "node3", "node4"]
    kube_lab.kill_node("node4")
    kube_lab.kubectl("delete", "node", "node4")


def test_an_image_is_loaded_into_every_node_and_the_second_time_costs_nothing(
    kube_lab: KubeLab, tmp_path: Path
) -> None:
    archive = tmp_path / "pause.tar"
    archive.write_bytes(images.pause_archive((kube_lab.programs / "pause").read_bytes()))

    kube_lab.load(archive)
    kube_lab.load(archive)

    found = kube_lab.exec("node2", kube_lab.programs / "ctr", "-n", "k8s.io", "images", "ls", "-q")
    assert images.PAUSE in found.split()


def test_down_leaves_no_process_mount_link_route_or_cgroup_behind(own_kube_lab: KubeLab) -> None:
    own_kube_lab.up(nodes=2)
    wait_for("the ServiceAccount", lambda: own_kube_lab.kubectl("get", "serviceaccount", "default"))
    own_kube_lab.kubectl("create", "deployment", "web", f"--image={images.PAUSE}", "--replicas=4")
    own_kube_lab.kubectl("wait", "--for=condition=Available", "--timeout=180s", "deployment/web")
    was = remains(own_kube_lab)

    own_kube_lab.down()

    kinds = {line.split()[0] for line in was}
    assert {"process", "link", "route", "cgroup"} <= kinds
    assert wait_for("all to be gone", lambda: not remains(own_kube_lab)), remains(own_kube_lab)


def test_a_lab_whose_processes_were_all_killed_comes_up_again_with_its_state(own_kube_lab: KubeLab) -> None:
    own_kube_lab.up(nodes=2)
    own_kube_lab.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    for pid in pids(own_kube_lab).values():
        if pid is not None and Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    wait_for("all to be dead", lambda: not any(pids(own_kube_lab).values()), pause_s=0.01)

    own_kube_lab.up(nodes=2)

    assert own_kube_lab.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"


@pytest.mark.faults
@pytest.mark.parametrize(
    "moment",
    [
        "node1",
        *(
            pytest.param(at, marks=pytest.mark.nightly)
            for at in ("etcd", "kube-scheduler", "node2.containerd")
        ),
    ],
)
def test_an_up_that_was_killed_half_way_is_finished_by_the_next(own_kube_lab: KubeLab, moment: str) -> None:
    folder = own_kube_lab.logs.parent
    processes = Processes(folder)
    up = [sys.executable, "-m", "sunk_lab", "up", "--kube", "--nodes", "2"]
    variables = environment({"SUNK_LAB_NUMBER": str(own_kube_lab.network.number), "SUNK_LAB_KUBE": "own"})
    with subprocess.Popen(up, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        wait_for(moment, lambda: moment in processes.names(), pause_s=0.001)
        running.kill()

    own_kube_lab.up(nodes=2)

    assert ready(own_kube_lab) == {"node1": True, "node2": True}
    own_kube_lab.down()
    assert wait_for("all to be gone", lambda: not remains(own_kube_lab)), remains(own_kube_lab)


def test_a_port_that_somebody_else_has_is_named(own_kube_lab: KubeLab) -> None:
    port = own_kube_lab.network.port_by_use["etcd"]
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(LabError, match=f"port {port} of etcd is taken"),
    ):
        own_kube_lab.up(nodes=1)

    own_kube_lab.down()
    assert remains(own_kube_lab) == []


def test_a_lab_of_the_same_number_but_another_folder_is_left_alone(kube_lab: KubeLab, tmp_path: Path) -> None:
    cache = kube_lab.programs.parent.parent
    other = KubeLab(kube_lab.network.number, folder=tmp_path / "kube", cache=cache, report=lambda _: None)

    other.down()
    with pytest.raises(LabError, match="is in use, from"):
        other.up()

    assert ready(kube_lab)["node1"]


def test_a_lab_whose_bridge_was_removed_is_whole_after_the_next_up(own_kube_lab: KubeLab) -> None:
    own_kube_lab.up(nodes=2)
    run("ip", "link", "del", own_kube_lab.network.bridge)

    own_kube_lab.up(nodes=2)

    wait_for("both nodes to be Ready", lambda: all(ready(own_kube_lab).values()))
