"""The addresses of one lab, and the machine's side of its network.

All of lab N is inside 10.(200+N).0.0/16: the machine and its API server .0.1, node i .0.(10+i), that node's
Pods .i.0/24, Services .128.0/17. An unreachable route for the whole and no default route in nodes: nothing
ever leaves the machine, and a Pod that tries to fails at once.
"""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.processes import run

MAX_NODES: Final = 30
PORTS: Final = range(24700, 24800)
"""Of all labs; below what the kernel gives to whoever asks for any port."""
_INOTIFY_INSTANCES: Final = 8192  # Fifteen a node, and the kernel's 128 are for all of a user's programs.


@dataclass(frozen=True)
class Network:
    """Every address, port and name that follows from a lab's number."""

    number: int

    @property
    def prefix(self) -> str:
        """Return the first two numbers of every address."""
        return f"10.{200 + self.number}"

    @property
    def whole(self) -> str:
        """Return the range of everything in this lab."""
        return f"{self.prefix}.0.0/16"

    @property
    def host(self) -> str:
        """Return the machine's own address on the lab's bridge: API server and DNS."""
        return f"{self.prefix}.0.1"

    @property
    def api(self) -> str:
        """Return the URL of the API server."""
        return f"https://{self.host}:6443"

    @property
    def services(self) -> str:
        """Return the range of ClusterIPs."""
        return f"{self.prefix}.128.0/17"

    @property
    def api_service(self) -> str:
        """Return the ClusterIP of Service kubernetes."""
        return f"{self.prefix}.128.1"

    @property
    def dns_service(self) -> str:
        """Return the ClusterIP of Service kube-dns."""
        return f"{self.prefix}.128.10"

    @property
    def bridge(self) -> str:
        """Return the name of the lab's bridge; at most 15 characters, with what `veth` adds."""
        return f"sunklab{self.number}"

    @property
    def port_by_use(self) -> Mapping[str, int]:
        """Return the ports on 127.0.0.1, by program, its second use after a dot."""
        uses = ("etcd", "etcd.peers", "kube-controller-manager", "kube-scheduler")
        return {use: PORTS.start + 10 * self.number + i for i, use in enumerate(uses)}

    @property
    def etcd(self) -> str:
        """Return the URL of etcd for its clients."""
        return f"http://127.0.0.1:{self.port_by_use['etcd']}"

    def node(self, index: int) -> str:
        """Return the address of node *index*."""
        return f"{self.prefix}.0.{10 + index}"

    def pods(self, index: int) -> str:
        """Return the range of the Pods of node *index*."""
        return f"{self.prefix}.{index}.0/24"

    def veth(self, index: int) -> str:
        """Return the machine's end of node *index*'s cable."""
        return f"{self.bridge}n{index}"

    def cgroup(self, index: int) -> str:
        """Return the name of the cgroup of node *index*, in every hierarchy."""
        return f"{self.bridge}-node{index}"

    def routes_of_node(self, index: int) -> str:
        """Return the lines for ``ip -batch`` in node *index*."""
        others = (other for other in range(1, MAX_NODES + 1) if other != index)
        return "\n".join(
            (
                "link set lo up",
                f"addr add {self.node(index)}/24 dev eth0",
                "link set eth0 up",
                # A local client's packet must have a route before kube-proxy can translate it.
                f"route add {self.services} dev lo src {self.node(index)}",
                *(f"route add {self.pods(other)} via {self.node(other)}" for other in others),
            )
        )

    def cni(self, index: int) -> str:
        """Return the CNI configuration of node *index*."""
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": self.pods(index)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        return json.dumps({"cniVersion": "1.0.0", "name": "sunk-lab", "plugins": [bridge, portmap]})


def owner(network: Network) -> Path | None:
    """Return the folder of the lab whose bridge is there; None if there is no bridge, or nobody's."""
    try:
        text = Path("/sys/class/net", network.bridge, "ifalias").read_text().strip()
    except FileNotFoundError:
        return None
    return Path(text) if text else None


def bring_up(network: Network, folder: Path) -> None:
    """Make the bridge of the lab in *folder* and the routes, as far as they are not there.

    Two settings of the machine stay when the lab is gone: forwarding on, and more inotify instances a user.
    """
    if not Path("/sys/class/net", network.bridge).exists():
        run("ip", "link", "add", network.bridge, "type", "bridge")
    run("ip", "link", "set", network.bridge, "alias", folder)
    run("ip", "addr", "replace", f"{network.host}/24", "dev", network.bridge)
    run("ip", "link", "set", network.bridge, "up")
    run("ip", "route", "replace", "unreachable", network.whole, "metric", "999")
    run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    if int(run("sysctl", "-n", "fs.inotify.max_user_instances")) < _INOTIFY_INSTANCES:
        run("sysctl", "-qw", f"fs.inotify.max_user_instances={_INOTIFY_INSTANCES}")


def take_down(network: Network) -> None:
    """Remove the bridge, the cables and the routes; none being there is success."""
    for cable in cables(network):  # The kernel takes its time with the other ends' dead namespaces.
        _remove("link", "del", cable)
    _remove("link", "del", network.bridge)
    _remove("route", "del", "unreachable", network.whole, "metric", "999")


def cables(network: Network) -> list[str]:
    """Return the machine's ends of cables to nodes, dead ones too, sorted."""
    return sorted(path.name for path in Path("/sys/class/net").glob(f"{network.bridge}n*"))


def is_plugged_in(network: Network, index: int) -> bool:
    """Return whether there is a cable from the bridge to node *index*, be it cut off or not."""
    return Path("/sys/class/net", network.bridge, "brif", network.veth(index)).exists()


def plug_in(network: Network, index: int, pid: int) -> None:
    """Connect the network namespace of *pid* with the bridge, as eth0 of node *index*."""
    cable = network.veth(index)
    _remove("link", "del", cable)
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", pid)
    run("ip", "link", "set", cable, "master", network.bridge, "up")
    run("ip", "route", "replace", network.pods(index), "via", network.node(index))


def route_services(network: Network, index: int) -> None:
    """Let the machine reach ClusterIPs through the kube-proxy of node *index*."""
    run("ip", "route", "replace", network.services, "via", network.node(index))


def taken_ports(network: Network, running: set[str]) -> Iterator[tuple[str, int]]:
    """Yield each program that does not run, with a port of it that somebody else listens on."""
    local = ((use.partition(".")[0], "127.0.0.1", port) for use, port in network.port_by_use.items())
    for program, address, port in (
        *local,
        ("kube-apiserver", network.host, 6443),
        ("coredns", network.host, 53),
    ):
        with socket.socket() as probe:
            if program not in running and probe.connect_ex((address, port)) == 0:
                yield program, port


def _remove(*what: str) -> None:
    with contextlib.suppress(LabError):  # What remains is found by whoever looks: `down` does.
        run("ip", *what)
