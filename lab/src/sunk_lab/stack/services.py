"""The five services as processes of the machine: their settings, their start, their violent end."""

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from sunk_lab.errors import GivenUpError, LabError
from sunk_lab.processes import Processes, wait_for
from sunk_lab.stack.users import NatsUsers

PORTS: Final = {
    "hook-gateway": 8080,
    "syncer": 8081,
    "nodeset-controller": 8082,
    "pod-scheduler": 8083,
    "metrics-exporter": 8084,
}
"""On the machine's address on the lab's bridge, so that labs never meet."""
HOOKS_TLS_PORT: Final = 8443


@dataclass(frozen=True, kw_only=True)
class Encryption:
    """With what the bus and the hook gateway speak TLS, and who vouches for it."""

    ca_file: Path
    gateway_cert_file: Path
    gateway_key_file: Path
    ca_file_in_pods: str
    """Where compute Pods have the authority."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where the services find what they work with."""

    cluster: str
    slurm_namespace: str
    host: str
    nats_url: str
    slurmrestd_url: str
    slurm_token_file: Path
    user_tokens_file: Path
    placement_key_file: Path
    kubeconfig_by_service: Mapping[str, Path]
    kill_wait_s: int
    nats_users: NatsUsers | None = None
    """None where NATS is somebody else's, and its address says who we are."""
    lease_ttl_s: int = 3
    ports: Mapping[str, int] = field(default_factory=lambda: PORTS)
    encryption: Encryption | None = None

    @property
    def hooks_url(self) -> str:
        """Return where prologs, epilogs and placeholder scripts call."""
        return hooks_url_at(self.host, self.ports, is_encrypted=self.encryption is not None)

    @property
    def metrics_url(self) -> str:
        """Return where Prometheus would scrape."""
        return f"http://{self.host}:{self.ports['metrics-exporter']}/metrics"


def hooks_url_at(host: str, ports: Mapping[str, int] = PORTS, *, is_encrypted: bool) -> str:
    """Return where hooks are answered on *host*."""
    return f"https://{host}:{HOOKS_TLS_PORT}" if is_encrypted else f"http://{host}:{ports['hook-gateway']}"


def settings(service: str, around: Surroundings) -> dict[str, str]:
    """Return the environment that *service* is started with."""
    prefix = f"SUNK_{service.upper().replace('-', '_')}_"
    own = _OWN[service](around)
    common = {
        "NATS_URL": around.nats_url,
        "HTTP_HOST": around.host,
        "HTTP_PORT": str(around.ports[service]),
    }
    if around.nats_users:
        user, password_file = around.nats_users.of_service(service)
        common |= {"NATS_USER": user, "NATS_PASSWORD_FILE": str(password_file)}
    if around.encryption:
        common["NATS_CA_FILE"] = str(around.encryption.ca_file)
    return {prefix + name: value for name, value in {**common, **own}.items()}


def _syncer(around: Surroundings) -> dict[str, str]:
    return {
        "CLUSTER": around.cluster,
        "SLURM_URL": around.slurmrestd_url,
        "SLURM_TOKEN_FILE": str(around.slurm_token_file),
        "LEASE_TTL_S": str(around.lease_ttl_s),
    }


def _nodeset_controller(around: Surroundings) -> dict[str, str]:
    return {
        "CLUSTERS": around.cluster,
        "KUBECONFIG": str(around.kubeconfig_by_service["nodeset-controller"]),
        "LEASE_NAMESPACE": "sunk",
        "LEASE_TTL_S": str(around.lease_ttl_s),
        "LOCK_LINGER_S": "1",
    }


def _pod_scheduler(around: Surroundings) -> dict[str, str]:
    return {
        "CLUSTER": around.cluster,
        "KUBECONFIG": str(around.kubeconfig_by_service["pod-scheduler"]),
        "NAMESPACE": around.slurm_namespace,
        "LEASE_TTL_S": str(around.lease_ttl_s),
        "SLURM_URL": around.slurmrestd_url,
        "SLURM_TOKEN_FILE": str(around.slurm_token_file),
        "USER_TOKENS_FILE": str(around.user_tokens_file),
        "KEY_FILE": str(around.placement_key_file),
        "HOOKS_URL": around.hooks_url,
        "HOOKS_CA_FILE": around.encryption.ca_file_in_pods if around.encryption else "",
    }


def _hook_gateway(around: Surroundings) -> dict[str, str]:
    return {
        "CLUSTER": around.cluster,
        "KUBECONFIG": str(around.kubeconfig_by_service["hook-gateway"]),
        "NAMESPACE": around.slurm_namespace,
        **_gateway_tls(around.encryption),
    }


def _gateway_tls(encryption: Encryption | None) -> dict[str, str]:
    if encryption is None:
        return {}
    return {
        "TLS_CERT_FILE": str(encryption.gateway_cert_file),
        "TLS_KEY_FILE": str(encryption.gateway_key_file),
        "TLS_PORT": str(HOOKS_TLS_PORT),
    }


def _metrics_exporter(around: Surroundings) -> dict[str, str]:
    return {"CLUSTER": around.cluster}


_OWN: Final = {
    "syncer": _syncer,
    "nodeset-controller": _nodeset_controller,
    "pod-scheduler": _pod_scheduler,
    "hook-gateway": _hook_gateway,
    "metrics-exporter": _metrics_exporter,
}


def arguments(service: str, around: Surroundings) -> list[str]:
    """Return the program's arguments: the two that the documents name."""
    if service == "pod-scheduler":
        return ["--scheduler-name=sunk-scheduler", f"--slurm-kill-wait={around.kill_wait_s}s"]
    return []


class Services:
    """The services of one stack."""

    def __init__(self, processes: Processes, around: Surroundings) -> None:
        self._processes = processes
        self._around = around

    def start(self, service: str) -> int:
        """Start *service* unless it runs; return its pid."""
        module = "sunk_" + service.replace("-", "_")
        argv = [sys.executable, "-m", module, *arguments(service, self._around)]
        return self._processes.spawn(service, argv, env=settings(service, self._around))

    def pid(self, service: str) -> int | None:
        """Return the pid of *service*; None if it does not run."""
        return self._processes.pid_of(service)

    def await_ready(self, service: str) -> None:
        """Wait until *service* says that it is ready.

        Raises:
            LabError: it ended, or is not ready in time; says what is missing and where its log is.
        """
        url = f"http://{self._around.host}:{self._around.ports[service]}/readyz"

        def is_ready() -> bool:
            if self._processes.pid_of(service) is None:
                raise GivenUpError(f"{service} ended, see {self._processes.log_of(service)}")
            try:
                answer = httpx.get(url, timeout=2, trust_env=False)
            except httpx.HTTPError as error:
                raise LabError(f"{url}: {type(error).__name__}") from error
            if answer.is_error:
                raise LabError(f"{url}: {answer.text.strip()}")
            return True

        wait_for(f"{service} to be ready, see {self._processes.log_of(service)}", is_ready, pause_s=0.05)

    def kill(self, service: str) -> None:
        """End *service* as a power failure would."""
        self._processes.kill(service, signal.SIGKILL)

    def stop(self, service: str) -> None:
        """Ask *service* to end, and see to it that it does."""
        self._processes.kill(service, signal.SIGTERM, patience_s=60)

    def start_all(self) -> None:
        """Start every service and wait until all are ready."""
        for service in PORTS:
            self.start(service)
        for service in PORTS:
            self.await_ready(service)
