"""A cluster's first month: a scanner at ssh, a login Pod that is replaced.

`./task test:install -- -k first_month` tells all of it on both releases.
"""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from sunk_kube.wellknown import TAINT_LOCK
from sunk_lab.config import from_environment
from sunk_lab.installation import Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import RELEASES

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
SSH: Final = "ssh -n -i /tmp/key -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking"


class Month(Installation):
    """Both releases, and two Pods of other addresses that call ssh."""

    user_key = ""

    def values(self) -> dict[str, Any]:
        values = super().values()
        values["login"] = values["login"] | {"service": {"type": "NodePort"}}
        keys = {"sshKeys": [self.user_key]} if self.user_key else {}
        return values | {"users": [{"name": "ada", "uid": 2000} | keys]}

    def make_caller(self, name: str) -> str:
        """Make a Pod of another address with a key of its own; return its public key."""
        container = {
            "name": name,
            "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{self.slurm.version}",
            "args": ["sleep", "infinity"],
        }
        pod = {"containers": [container], "tolerations": [{"key": TAINT_LOCK, "operator": "Exists"}]}
        metadata = {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
        self.lab.kubectl("-n", "default", "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
        return self.call(name, "ssh-keygen -q -t ed25519 -N '' -f /tmp/key; cat /tmp/key.pub").strip()

    def call(self, caller: str, command: str) -> str:
        """Return what *command* says in the Pod *caller*, whether it fails or not."""
        run = f"{command} 2>&1 || true"
        return self.lab.kubectl("-n", "default", "exec", caller, "--", "bash", "-c", run)

    def log_in(self, caller: str, checking: str = "yes") -> str:
        """Return what ada, who calls from there, is told by `id`, or by ssh."""
        return self.call(caller, f"{SSH}={checking} ada@slurm-login.slurm id -un")


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Month]:
    """Both releases on two Nodes, which are compute Nodes too, and callers of two addresses."""
    with reserved_lab() as lab:
        made = Month(lab, nodes=("node1", "node2"), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        made.user_key = made.make_caller("user")
        made.make_caller("scanner")
        yield made


def test_a_scanner_locks_nobody_else_out_of_ssh(cluster: Month) -> None:
    cluster.install_slurm()
    wait_for("ada to come in", lambda: "ada" in cluster.log_in("user", "accept-new").splitlines(), 180)
    attempt = f"{SSH}=accept-new ada@slurm-login.slurm true || echo refused"
    first_line = "head -n1 </dev/tcp/slurm-login.slurm/22"

    with ThreadPoolExecutor(1) as pool:
        command = f"for turn in {{1..30}}; do {attempt}; done; {first_line}"
        scan = pool.submit(cluster.call, "scanner", command)
        seen: list[str] = []
        while not scan.done():
            seen.append(cluster.log_in("user").strip())
    told = scan.result().splitlines()

    assert told.count("refused") == 30
    assert told[-1].startswith("Not allowed at this time")
    assert set(seen) == {"ada"}
    assert cluster.log_in("user").strip() == "ada"


def test_a_login_pod_that_is_replaced_is_the_same_to_ssh(cluster: Month) -> None:
    wait_for("ada to come in", lambda: "ada" in cluster.log_in("user", "accept-new").splitlines(), 180)
    before = cluster.uids("pod")["slurm-login-0"]
    known = cluster.call("user", "cat ~/.ssh/known_hosts")

    cluster.kubectl("delete", "pod", "slurm-login-0")

    def is_new() -> bool:
        return cluster.uids("pod").get("slurm-login-0", before) != before

    wait_for("the next login Pod", is_new, 120)
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=180s", "pod/slurm-login-0")
    wait_for("ada to come in", lambda: cluster.log_in("user").strip() == "ada", 60)
    assert cluster.call("user", "cat ~/.ssh/known_hosts") == known
