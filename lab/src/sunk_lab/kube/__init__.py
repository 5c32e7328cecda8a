"""A real Kubernetes of several nodes on one machine, without a container engine.

Every program is upstream's own, built from Go modules. A node is a pid, mount, network and UTS namespace
with a containerd, a kubelet and a kube-proxy of its own, so it has its own address and default paths, and
ends with one process.
"""
