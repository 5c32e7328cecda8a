"""The whole stack: NATS, Kubernetes, Slurm in Pods, the five services, a NodeSet over the compute Nodes.

`Stack.up` is idempotent: what runs is left alone. Everything of one stack is below its lab's folder.
"""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from sunk_lab.config import LabConfig
from sunk_lab.errors import LabError
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.lab import KubeLab
from sunk_lab.kube.prerequisites import TO_MAKE_ROOTS, TO_RUN, require
from sunk_lab.nats import NatsServer
from sunk_lab.processes import Processes, ProcessStatus, wait_for
from sunk_lab.slurm.pods import HOOKS_CA_FILE, PodSlurm, cluster_manifests, slurmd_pod_template
from sunk_lab.slurm.roots import PLACEHOLDER_USER, image_of
from sunk_lab.slurm.tokens import Keys, new_keys, new_token
from sunk_lab.stack import manifests, rbac
from sunk_lab.stack.http import Http
from sunk_lab.stack.kubeapi import KubeApi, kubeconfig_with_token
from sunk_lab.stack.raw import Object, dig, dig_list
from sunk_lab.stack.services import PORTS, Encryption, Services, Surroundings, hooks_url_at
from sunk_lab.stack.slurmapi import SlurmApi, node_state
from sunk_lab.stack.users import INCLUDED, NatsUsers
from sunk_lab.which_nats import nats_of

CLUSTER: Final = "lab"
SLURM_NAMESPACE: Final = "slurm"
NODES: Final = 4
"""One for slurmctld and slurmrestd, the others for the NodeSet."""
KILL_WAIT_S: Final = 40
_READY: Final = frozenset({"IDLE"})
_UNREADY: Final = frozenset({"NOT_RESPONDING", "DOWN", "UNKNOWN", "DRAIN"})


class Stack:
    """One stack, by its lab's number."""

    def __init__(
        self, config: LabConfig, *, report: Callable[[str], None], is_encrypted: bool = False
    ) -> None:
        """Describe it. *is_encrypted*: its own NATS and the hook gateway speak TLS, and nothing else."""
        if config.kubeconfig is not None:
            raise LabError(
                "the whole stack runs on the lab's own Kubernetes only: unset SUNK_LAB_KUBE "
                "(an existing cluster serves the tests of single services)"
            )
        self._config = config
        self._report = report
        self._release = config.slurm
        self._folder = config.folder / "stack"
        self._lab = KubeLab(config.number, folder=config.folder / "kube", cache=config.cache, report=report)
        self._processes = Processes(self._folder)
        self._authority = Authority(self._folder / "tls") if is_encrypted else None
        self._nats = nats_of(config, self._folder / "nats", self._processes, extra=self._nats_extra())
        is_ours = isinstance(self._nats, NatsServer)
        self._nats_users = NatsUsers(self._folder / "nats", CLUSTER) if is_ours else None

    @property
    def number(self) -> int:
        """Return its lab's number."""
        return self._config.number

    @property
    def nats_url(self) -> str:
        """Return where NATS is."""
        return self._nats.url

    def nats_url_of(self, user: str) -> str:
        """Return where NATS is, with the credentials of *user* if it has our users."""
        return self._nats_users.address(self.nats_url, user) if self._nats_users else self.nats_url

    @property
    def machines(self) -> KubeLab:
        """Return its Kubernetes, to stop kubelets and start them again."""
        return self._lab

    @property
    def hooks_url(self) -> str:
        """Return where prologs, epilogs and placeholder scripts call."""
        return self._around.hooks_url

    @property
    def logs(self) -> Path:
        """Return the folder of all logs."""
        return self._config.folder

    @cached_property
    def kube(self) -> KubeApi:
        """Return the lab's own connection to the API server."""
        return KubeApi(self._lab.kubeconfig)

    @cached_property
    def slurm(self) -> SlurmApi:
        """Return the lab's own connection to slurmrestd."""
        return SlurmApi(self._slurmrestd_url(), new_token(self._keys.jwt))

    @cached_property
    def services(self) -> Services:
        """Return the five services."""
        return Services(self._processes, self._around)

    def is_built(self) -> bool:
        """Return whether what takes minutes to build is there: the programs of Kubernetes."""
        return self._lab.is_built()

    def prepare(self) -> None:
        """Build what the stack is made of, at the same time; nothing if it is there."""
        # What both halves need, before they run side by side: there is one package manager.
        require({**TO_RUN, **TO_MAKE_ROOTS}, report=self._report)
        with ThreadPoolExecutor(2) as pool:
            image = pool.submit(image_of, self._release, self._config.cache, self._report)
            self._lab.build()
            image.result()

    def is_up(self) -> bool:
        """Return whether the last of its parts runs."""
        return self._lab.is_up() and all(self._processes.pid_of(service) for service in PORTS)

    def up(self, *, is_audited: bool = False) -> None:
        """Start whatever does not run; afterwards every compute node is idle in Slurm.

        *is_audited*: as in `KubeLab.up`.

        Raises:
            LabError: something does not start; names its log.
        """
        began = time.monotonic()
        self.prepare()
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._nats_users:
            self._nats_users.make()
        if self._authority:
            self._authority.found()
            self._authority.issue("nats", "nats", names="IP:127.0.0.1")
            self._authority.issue("gateway", "gateway", names=f"IP:{self._lab.network.host}")
        self._nats.start()
        self._report(f"NATS is at {self.nats_url}")
        self._lab.up(nodes=NODES, is_audited=is_audited)
        self._lab.load(image_of(self._release, self._config.cache, self._report))
        self._furnish()
        self._report(f"slurmctld and slurmrestd are ready after {time.monotonic() - began:.1f} s")
        self.services.start_all()
        self.kube.apply(manifests.nodeset(CLUSTER, SLURM_NAMESPACE, slurmd_pod_template(self._pod_slurm)))
        wait_for(f"every Slurm node to be idle; {self._why()}", self._are_nodes_idle, pause_s=0.05)
        self._report(f"{NODES - 1} Slurm nodes are idle after {time.monotonic() - began:.1f} s")

    def down(self) -> None:
        """End and remove everything, however much of it there is."""
        for service in PORTS:
            self._processes.kill(service)
        self._nats.stop()
        self._lab.down()
        self.close()
        self._remove_folder()

    def close(self) -> None:
        """Close our own connections; they are opened again when they are needed."""
        for name in ("kube", "slurm"):
            if connection := self.__dict__.pop(name, None):  # Where cached_property keeps what it made.
                connection.close()

    def status(self) -> list[ProcessStatus]:
        """Return the services' and NATS' processes, sorted by name."""
        return self._processes.status()

    def credentials(self) -> dict[str, str]:
        """Return what no other may know, by what it is: passwords of NATS, tokens of Slurm and Kubernetes.

        Without the tokens of hooks, which compute Pods have, and those of placeholders (`placement_key`).
        """
        found = {"token of the syncer": self._around.slurm_token_file.read_text().strip()}
        users = msgspec.json.decode(self._around.user_tokens_file.read_bytes(), type=dict[str, str])
        found |= {f"token of Slurm user {number}": token for number, token in users.items()}
        if self._nats_users:
            for service in PORTS:
                user, file = self._nats_users.of_service(service)
                found[f"password of {user}"] = file.read_text().strip()
        for service, file in self._around.kubeconfig_by_service.items():
            config = msgspec.json.decode(file.read_bytes())
            found[f"token of account sunk-{service}"] = config["users"][0]["user"]["token"]
        return found

    @property
    def placement_key(self) -> bytes:
        """Return the key of placeholders' tokens."""
        return self._around.placement_key_file.read_bytes()

    def restart_nats(self) -> None:
        """Kill NATS as a power failure would, and start it again with what it had stored."""
        if not isinstance(self._nats, NatsServer):
            raise LabError(
                "only the stack's own NATS is ever killed: unset SUNK_LAB_NATS_URL and SUNK_LAB_ENGINE"
            )
        self._nats.kill()
        self._nats.start()

    def nodeset_pods(self) -> list[tuple[str, Object]]:
        """Return namespace and Pod of every NodeSet Pod, sorted by name."""
        found = self.kube.list("Pod", SLURM_NAMESPACE, labelSelector="sunk.coreweave.com/nodeset")
        return [(SLURM_NAMESPACE, pod) for pod in sorted(found, key=lambda pod: pod["metadata"]["name"])]

    def kubectl(self, *args: str, timeout_s: float = 240.0) -> str:
        """Run kubectl and return what it prints."""
        return self._lab.kubectl(*args, timeout_s=timeout_s)

    def exec_in(self, namespace: str, pod: str, *argv: str) -> str:
        """Run a program in a Pod and return what it prints."""
        return self.kubectl("-n", namespace, "exec", pod, "--", *argv)

    def slurm_command(self, *argv: str) -> str:
        """Run one of Slurm's commands beside slurmctld and return what it prints."""
        return self.exec_in(SLURM_NAMESPACE, "slurmctld-0", *argv)

    def metrics_of(self, service: str) -> str:
        """Return what a service's /metrics says."""
        around = self._around
        with Http(timeout=60, trust_env=False) as http:
            answer = http.ask("GET", f"http://{around.host}:{around.ports[service]}/metrics")
        if answer.is_error:
            raise LabError(f"GET {answer.request.url}: {answer.status_code} {answer.text[:200]}")
        return answer.text

    def scrape(self) -> str:
        """Return what the exporter says."""
        return self.metrics_of("metrics-exporter")

    def how_to_look_around(self) -> list[str]:
        """Return the commands that show what runs."""
        around = self._around
        return [
            f"export KUBECONFIG={self._lab.kubeconfig} PATH={self._lab.programs}:$PATH  # for this shell",
            f"kubectl -n {SLURM_NAMESPACE} exec slurmctld-0 -- scontrol show node  # what Slurm knows",
            "kubectl get nodes                # cordon one, and look at Slurm again",
            "./task bus -- tail               # follows the events on NATS",
            f"curl -s {around.metrics_url}  # what Prometheus scrapes",
            "./task lab:down                  # ends and removes all of it",
        ]

    @cached_property
    def _keys(self) -> Keys:
        """The cluster's keys, made once: a second `up` must not change what the daemons have."""
        files = {name: self._folder / f"{name}.key" for name in ("slurm", "jwt")}
        if not all(file.exists() for file in files.values()):
            made = new_keys()
            for name, content in (("slurm", made.slurm), ("jwt", made.jwt)):
                _write_secret(files[name], content)
        return Keys(slurm=files["slurm"].read_bytes(), jwt=files["jwt"].read_bytes())

    @property
    def _pod_slurm(self) -> PodSlurm:
        scripts = Path(__file__).resolve().parents[4] / "helm" / "slurm" / "files"
        return PodSlurm(
            release=self._release,
            keys=self._keys,
            hooks_url=hooks_url_at(self._lab.network.host, is_encrypted=self._authority is not None),
            hooks_ca=self._authority.crt().read_text() if self._authority else "",
            prolog=(scripts / "prolog.sh").read_text(),
            epilog=(scripts / "epilog.sh").read_text(),
            gateway=(scripts / "gateway.sh").read_text(),
            cluster=CLUSTER,
            namespace=SLURM_NAMESPACE,
            kill_wait_s=KILL_WAIT_S,
        )

    def _furnish(self) -> None:
        """Make everything in Kubernetes that the services find there."""
        for index in range(2, NODES + 1):
            self.kube.patch(
                "Node", f"node{index}", {"metadata": {"labels": {manifests.COMPUTE_LABEL: "true"}}}
            )
        crds = Path(__file__).resolve().parents[4] / "helm" / "sunk" / "files" / "crds"
        self._lab.kubectl("apply", "--server-side", "-f", str(crds))
        for manifest in (*rbac.manifests(SLURM_NAMESPACE), *cluster_manifests(self._pod_slurm)):
            self.kube.apply(manifest)
        wait_for("NodeSets to be known", lambda: [self.kube.list("NodeSet", SLURM_NAMESPACE)])
        for kind, name in (("StatefulSet", "slurmctld"), ("Deployment", "slurmrestd")):
            wait_for(
                f"{name} to be ready; {self._why()}",
                lambda k=kind, n=name: self._is_ready(k, n),
                pause_s=0.05,
            )
        wait_for("slurmrestd to answer", lambda: [self.slurm.nodes()], pause_s=0.05)

    def _is_ready(self, kind: str, name: str) -> bool:
        found = self.kube.get(kind, name, SLURM_NAMESPACE)
        ready, seen = dig(found, "status", "readyReplicas"), dig(found, "status", "observedGeneration")
        is_updated = dig(found, "status", "updatedReplicas") == 1
        return ready == 1 and is_updated and seen == dig(found, "metadata", "generation")

    def _are_nodes_idle(self) -> bool:
        found = [node_state(node) for node in self.slurm.nodes()]
        good = [state for state in found if state & _READY and not state & _UNREADY]
        return len(good) >= NODES - 1

    def _slurmrestd_url(self) -> str:
        service = self.kube.get("Service", "slurmrestd", SLURM_NAMESPACE)
        ports = dig_list(service, "spec", "ports")
        if not ports:
            raise LabError("there is no Service slurmrestd: is the stack up?")
        return f"http://{dig(service, 'spec', 'clusterIP')}:{ports[0]['port']}"

    @cached_property
    def _around(self) -> Surroundings:
        token, key = self._folder / "slurm.token", self._folder / "placement.key"
        _write_secret(token, new_token(self._keys.jwt).encode())
        users, number = self._folder / "users.json", str(PLACEHOLDER_USER.uid)
        _write_secret(users, msgspec.json.encode({number: new_token(self._keys.jwt, user=number)}))
        if not key.exists():
            _write_secret(key, new_keys().jwt)
        accounts = {service: self._kubeconfig_of(service) for service in rbac.RULES}
        return Surroundings(
            cluster=CLUSTER,
            slurm_namespace=SLURM_NAMESPACE,
            host=self._lab.network.host,
            nats_url=self.nats_url,
            nats_users=self._nats_users,
            slurmrestd_url=self._slurmrestd_url(),
            slurm_token_file=token,
            user_tokens_file=users,
            placement_key_file=key,
            kubeconfig_by_service=accounts,
            kill_wait_s=KILL_WAIT_S,
            encryption=self._encryption(),
        )

    def _encryption(self) -> Encryption | None:
        made = self._authority
        if made is None:
            return None
        return Encryption(
            ca_file=made.crt(),
            gateway_cert_file=made.crt("gateway"),
            gateway_key_file=made.key("gateway"),
            ca_file_in_pods=HOOKS_CA_FILE,
        )

    def _nats_extra(self) -> str:
        """Return what else NATS is told. With a short time for a handshake a busy machine fails it."""
        if self._authority is None:
            return INCLUDED
        files = f'cert_file: "{self._authority.crt("nats")}", key_file: "{self._authority.key("nats")}"'
        return f"{INCLUDED}\ntls {{ {files}, timeout: 60 }}"

    def _kubeconfig_of(self, service: str) -> Path:
        """Return a kubeconfig that speaks for the ServiceAccount of *service* alone."""
        file = self._folder / f"{service}.kubeconfig"
        if not file.exists():
            token = self.kube.service_account_token(f"sunk-{service}", rbac.NAMESPACE)
            _write_secret(file, msgspec.json.encode(kubeconfig_with_token(self.kube, token)))
        return file

    def _why(self) -> str:
        return f"logs are in {self.logs}"

    def _remove_folder(self) -> None:
        for path in sorted(self._folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        for folder in (self._folder, self._config.folder):
            with contextlib.suppress(OSError):  # Not there, or a test run's mark is in it.
                folder.rmdir()


def _write_secret(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)
