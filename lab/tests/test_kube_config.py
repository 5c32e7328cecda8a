"""What is pure: addresses, versions, keys, configuration."""

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sunk_lab.errors import LabError
from sunk_lab.kube import build, cgroups, control_plane, go, images, manifests, node_files
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.network import MAX_NODES, Network
from sunk_lab.kube.nodes import number


def copy_of_sources(folder: Path) -> Path:
    return Path(shutil.copytree(build.SOURCES, folder / "go"))


def test_the_key_of_the_programs_changes_with_their_sources_only(tmp_path: Path) -> None:
    same, other = copy_of_sources(tmp_path / "same"), copy_of_sources(tmp_path / "other")
    with (other / "main.go").open("a") as source:
        source.write("// changed\n")

    assert build.key(same) == build.key()
    assert build.key(other) != build.key()
    assert build.key().startswith(f"{build.kubernetes_version()}-")


def test_programs_say_the_version_they_were_built_from() -> None:
    (multicall, *_) = build.targets("1.36.3")

    stamps = multicall.flags[1].split()

    assert {
        "k8s.io/component-base/version.gitVersion=v1.36.3",
        "k8s.io/client-go/pkg/version.gitMinor=36",
    } <= {*stamps}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("go version go1.26.8 linux/amd64", (1, 26), id="release"),
        pytest.param("go version go1.27rc1 linux/arm64", (1, 27), id="candidate"),
        pytest.param("go: cannot find GOROOT", (0, 0), id="broken"),
    ],
)
def test_the_version_of_go_is_read_from_what_it_prints(text: str, expected: tuple[int, int]) -> None:
    assert go.version(text) == expected


def test_labs_share_no_address_port_or_link() -> None:
    labs = [Network(index) for index in range(10)]

    ports = [port for lab in labs for port in lab.port_by_use.values()]

    assert len(set(ports)) == len(ports)
    assert len({lab.whole for lab in labs}) == len({lab.bridge for lab in labs}) == len(labs)


def test_names_of_links_are_as_short_as_the_kernel_wants_them() -> None:
    assert max(len(Network(9).veth(index)) for index in range(1, MAX_NODES + 1)) <= 15


def test_a_node_knows_the_way_to_every_other_nodes_pods_but_not_out_of_the_lab() -> None:
    lines = Network(3).routes_of_node(2).splitlines()

    assert "route add 10.203.1.0/24 via 10.203.0.11" in lines
    assert not [line for line in lines if "10.203.2.0/24" in line or "default" in line]


@pytest.mark.parametrize("name", ["node0", "node31", "node", "nodeX", "worker1", "node1/.."])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="they are called node1 to node30"):
        number(name)


def test_the_kubelet_keeps_to_its_own_cgroup_and_address() -> None:
    found: dict[str, Any] = json.loads(node_files.kubelet(Network(1), 2, Authority(Path("/pki"))))

    assert (found["cgroupRoot"], found["address"]) == ("/sunklab1-node2", "10.201.0.12")


def test_pods_get_addresses_of_their_own_node() -> None:
    found: dict[str, Any] = json.loads(Network(1).cni(2))

    assert found["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.201.2.0/24"}]]


def test_an_api_server_uses_its_own_labs_etcd_and_checks_rights() -> None:
    flags = control_plane.apiserver_flags(Network(2), Authority(Path("/pki")))

    assert {"--etcd-servers=http://127.0.0.1:24720", "--authorization-mode=Node,RBAC"} <= {*flags}


def test_the_provisioner_is_called_the_same_in_the_storage_class_and_in_its_program() -> None:
    assert f'"{manifests.PROVISIONER}"' in (build.SOURCES / "main.go").read_text()


def test_the_pause_image_holds_the_program_and_names_its_layer_by_digest() -> None:
    with tarfile.open(fileobj=io.BytesIO(images.pause_archive(b"program"))) as archive:
        content = {entry.name: archive.extractfile(entry) for entry in archive}
        files = {name: file.read() for name, file in content.items() if file}
    config: dict[str, Any] = json.loads(files["config.json"])
    with tarfile.open(fileobj=io.BytesIO(files["layer.tar"])) as layer:
        program = layer.getmember("pause")

    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(files['layer.tar']).hexdigest()}"]
    assert (json.loads(files["manifest.json"])[0]["RepoTags"], program.mode) == ([images.PAUSE], 0o755)


def test_an_archive_that_was_written_again_is_loaded_again(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(b"one")
    before = images.mark(archive)

    archive.write_bytes(b"other")

    assert images.mark(archive) != before


def test_a_machine_with_cgroup_v2_only_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()  # As the root of v2 looks.
    assert not cgroups.is_supported(tmp_path)

    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").touch()
    assert cgroups.is_supported(tmp_path)


def test_the_pods_of_a_node_weigh_more_than_one_process_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()

    cgroups.make("node1", tmp_path)

    assert int((tmp_path / "cpu/node1/cpu.shares").read_text()) > 1024
