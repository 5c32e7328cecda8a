"""The two sides of the story where the charts have installed them."""

import base64
import json
from functools import cached_property

from sunk_lab.errors import LabError
from sunk_lab.installation import NAMESPACE, Installation
from sunk_lab.slurm.tokens import new_token
from sunk_lab.stack.http import Http
from sunk_lab.stack.kubeapi import KubeApi
from sunk_lab.stack.raw import Object, dig, dig_list
from sunk_lab.stack.slurmapi import SlurmApi


class Installed:
    """The Slurm cluster of *made*, by its Services and by the keys that its chart has made."""

    def __init__(self, made: Installation) -> None:
        self._made = made

    @cached_property
    def kube(self) -> KubeApi:
        """Return a connection to the API server."""
        return KubeApi(self._made.lab.kubeconfig)

    @cached_property
    def slurm(self) -> SlurmApi:
        """Return a connection to slurmrestd, as root."""
        service = self.kube.get("Service", "slurm-rest", NAMESPACE)
        (port, *_) = dig_list(service, "spec", "ports")
        data: dict[str, str] = json.loads(
            self._made.kubectl("get", "secret", "slurm-keys", "-o", "jsonpath={.data}")
        )
        key = base64.b64decode(data["jwt.key"])
        return SlurmApi(f"http://{dig(service, 'spec', 'clusterIP')}:{port['port']}", new_token(key))

    def close(self) -> None:
        """Close both connections."""
        for name in ("kube", "slurm"):
            if connection := self.__dict__.pop(name, None):  # Where cached_property keeps what it made.
                connection.close()

    def nodeset_pods(self) -> list[tuple[str, Object]]:
        """Return namespace and Pod of every NodeSet Pod, sorted by name."""
        found = self.kube.list("Pod", NAMESPACE, labelSelector="sunk.coreweave.com/nodeset")
        return [(NAMESPACE, pod) for pod in sorted(found, key=lambda pod: pod["metadata"]["name"])]

    def kubectl(self, *args: str) -> str:
        """Run kubectl and return what it prints."""
        return self._made.lab.kubectl(*args)

    def exec_in(self, namespace: str, pod: str, *argv: str) -> str:
        """Run a program in the first container of a Pod and return what it prints."""
        return self.kubectl("-n", namespace, "exec", pod, "--", *argv)

    def slurm_command(self, *argv: str) -> str:
        """Run one of Slurm's commands where users are and return what it prints."""
        return self._made.kubectl("exec", "slurm-login-0", "-c", "sshd", "--", *argv)

    def scrape(self) -> str:
        """Return what the exporter says."""
        (pod, *_) = self.kube.list(
            "Pod", NAMESPACE, labelSelector="app.kubernetes.io/name=sunk-metrics-exporter"
        )
        with Http(timeout=30, trust_env=False) as http:
            answer = http.ask("GET", f"http://{dig(pod, 'status', 'podIP')}:8080/metrics")
        if answer.is_error:
            raise LabError(f"GET {answer.request.url}: {answer.status_code} {answer.text[:200]}")
        return answer.text
