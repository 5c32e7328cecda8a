"""What stands on a node's disk: its start script and its components' configuration. Pure."""

import json
from pathlib import Path
from typing import Final

from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.network import Network

# Pid 1 of a node: gives it a /run and default paths of its own, then only reaps what is left to it.
# Volume propagation needs the shared root; containerd has sockets in /run, whatever it is told.
INIT: Final = r"""
set -e
folder=$1 programs=$2 name=$3
mount --make-rshared /
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/lock /run/netns /run/containerd
for d in etc opt var/lib var/log; do
    u=$folder/over/${d/\//-}
    mkdir -p $u/up $u/work
    [ ! -d /$d ] || mount -t overlay -o lowerdir=/$d,upperdir=$u/up,workdir=$u/work overlay /$d
done
for d in /var/lib/kubelet /var/lib/containerd /var/log/pods /var/log/containers; do
    mkdir -p $folder/data$d $d
    mount --bind $folder/data$d $d
done
mkdir -p /etc/cni/net.d /etc/containerd /opt/cni/bin
mount --bind $programs /opt/cni/bin
hostname $name
echo $name >/etc/hostname
echo "127.0.0.1 localhost $name" >/etc/hosts
: >/etc/resolv.conf
: >$folder/ready
trap : TERM INT HUP
set +e
while :; do sleep 3600 & wait; done
"""


def containerd(programs: Path, sandbox: str) -> str:
    """Return containerd's configuration: the sandbox image is one that is never pulled."""
    return f"""
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{sandbox}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{programs}/runc"
      SystemdCgroup = false
"""


def kubelet(network: Network, index: int, authority: Authority) -> str:
    """Return the kubelet's configuration.

    It reports every two seconds, so that a node is NotReady soon after it fails, and never evicts: all nodes
    see the whole machine's disk and memory.
    """
    name = f"node{index}"
    never = dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%")
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": network.node(index),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.crt())},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(authority.crt(name)),
            "tlsPrivateKeyFile": str(authority.key(name)),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{network.cgroup(index)}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "clusterDNS": [network.dns_service],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "makeIPTablesUtilChains": False,
            "localStorageCapacityIsolation": False,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": never,
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 8,
            "syncFrequency": "5s",
        }
    )


def kube_proxy(name: str, kubeconfig: Path) -> str:
    """Return kube-proxy's configuration; what does not come from the node's own bridge is masqueraded."""
    # Connection tracking cannot be written to from a namespace: 0 leaves it alone.
    conntrack = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "hostnameOverride": name,
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "detectLocalMode": "BridgeInterface",
            "detectLocal": {"bridgeInterface": "cni0"},
            "conntrack": conntrack,
        }
    )
