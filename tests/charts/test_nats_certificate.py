"""NATS' certificate that the charts have made: kept over upgrades, renewed, known to each Slurm cluster.

On a real API server and, where the certificate is used, on a real NATS. No Node is there: the program runs
here, as the account that helm/sunk gives it.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import helm_python as helm
import pytest
from cryptography import x509

from sunk_kube.client import connect as connect_kube
from sunk_lab.charts import env_of, helm_of, pod_specs, render, rights, sunk_values
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.stack.kubeapi import KubeApi, kubeconfig_with_token
from sunk_nodeset_controller.certificates.decision import Data, wanted_authorities, wanted_server
from sunk_nodeset_controller.certificates.issuing import names_of
from sunk_nodeset_controller.certificates.keeping import Place, keep
from sunk_runtime.errors import PermanentError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until

CHARTS: Final = Path(__file__).parents[2] / "helm"
ACCOUNT: Final = "sunk-nats-certificate"
SECRETS: Final = ("sunk-nats-authority", "sunk-nats-tls")
GENERATE: Final = {"tls": {"generate": True}}
AUTHORITY: Final = "sunk-nats-authority"
SERVER: Final = "sunk-nats-tls"
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
SLURM: Final[dict[str, Any]] = {"clusterName": "prod", "compute": {"nodes": {"cpu": {"replicas": 1}}}}


def sunk(**nats: Any) -> dict[str, Any]:  # noqa: ANN401 - values are free-form.
    values = sunk_values()
    return values | {"nats": values["nats"] | GENERATE | nats}


def rendered(**nats: Any) -> dict[tuple[str, str], dict[str, Any]]:  # noqa: ANN401 - values are free-form.
    return render(helm.Chart.load(CHARTS / "sunk"), sunk(**nats), name="sunk", namespace="sunk")


def names() -> tuple[str, ...]:
    """Return the host names that helm/sunk has the certificate made for."""
    spec = pod_specs(rendered())[ACCOUNT]
    return tuple(env_of(spec)["SUNK_CERTIFICATE_NAMES"].split(","))


def test_what_is_rendered_has_no_key_in_it_and_is_the_same_each_time() -> None:
    first, second = rendered(existingSecret="passwords"), rendered(existingSecret="passwords")

    assert first == second
    assert [set(first["Secret", name]) & {"data", "stringData"} for name in SECRETS] == [set(), set()]
    kept = {first["Secret", name]["metadata"]["annotations"]["helm.sh/resource-policy"] for name in SECRETS}
    assert kept == {"keep"}


def test_the_certificate_has_every_name_by_which_a_chart_calls_a_server() -> None:
    made = rendered(replicas=3, subscribers=["billing"])
    containers = [one for spec in pod_specs(made).values() for one in spec["containers"]]
    values = [str(entry.get("value", "")) for one in containers for entry in one.get("env", [])]
    words = [*values, *made["ConfigMap", "sunk-nats"]["data"]["three.conf"].split()]
    addresses = [word.strip('"') for word in words if word.strip('"').startswith("nats")]
    called = {str(urlsplit(address).hostname) for address in addresses if "://" in address}
    store = x509.verification.Store(x509.load_pem_x509_certificates(made_for(names())["ca.crt"]))
    verifier = x509.verification.PolicyBuilder().store(store).time(NOW)

    assert len(called) >= 5
    for host in called:
        leaf = x509.load_pem_x509_certificate(made_for(names())["tls.crt"])
        verifier.build_server_verifier(x509.DNSName(host)).verify(leaf, [])


def made_for(hosts: tuple[str, ...], authorities: Data | None = None) -> Data:
    authorities = wanted_authorities(MADE if authorities is None else authorities, NOW)
    return wanted_server(authorities, {}, hosts, NOW)


MADE: Final = wanted_authorities({}, NOW)


def test_the_program_may_read_and_change_its_two_secrets_and_nothing_else() -> None:
    made = rendered()
    of_it = {key for key, found in made.items() if ACCOUNT in json.dumps(found.get("subjects", ""))}
    (rule,) = made["Role", ACCOUNT]["rules"]

    assert of_it == {("RoleBinding", ACCOUNT)}
    assert rights([rule]) == {("", "secrets", "get"), ("", "secrets", "patch")}
    assert sorted(rule["resourceNames"]) == sorted(SECRETS)


def test_no_other_pod_has_the_key_of_the_authority() -> None:
    specs = pod_specs(rendered(replicas=3, subscribers=["billing"]))

    assert AUTHORITY not in json.dumps(specs)
    holders = {
        name
        for name, spec in specs.items()
        for volume in spec.get("volumes", [])
        if volume.get("secret", {}).get("secretName") == SERVER
        and "tls.key" in {item["key"] for item in volume["secret"]["items"]}
    }
    assert holders == {"sunk-nats", "sunk-nats-teams"}


@pytest.mark.parametrize(
    ("nats", "why"),
    [
        ({"tls": {"generate": True, "existingSecret": "mine"}}, "set one of the two"),
        ({"tls": {"generate": True}, "enabled": False, "url": "nats://bus:4222"}, "nats.enabled is false"),
        ({"tls": {"names": ["bus.example.com"]}}, "nats.tls.names: these names go into"),
        ({"tls": {"generate": True, "names": ["192.0.2.1"]}}, "192.0.2.1 is an address"),
    ],
    ids=["two certificates", "another NATS", "names of no certificate", "an address"],
)
def test_what_makes_no_sense_is_refused(nats: dict[str, Any], why: str) -> None:
    with pytest.raises(helm.HelmRenderError, match=why):
        rendered(**nats)


@pytest.mark.parametrize(
    "name",
    ["", "Bus.example.com", "bus_1.example.com", "a.*.example.com", "bus.example.com:4222", "a,b", "-a"],
)
def test_what_is_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(helm.HelmError, match="names"):
        rendered(tls={"generate": True, "names": [name]})


def test_the_nodeset_controller_shows_the_certificate_of_this_charts_nats_only() -> None:
    file = "SUNK_NODESET_CONTROLLER_NATS_CERTIFICATE_FILE"
    elsewhere = {"enabled": False, "url": "tls://bus:4222", "tls": {"existingSecret": "theirs"}}
    specs = [pod_specs(rendered(**nats))["sunk-nodeset-controller"] for nats in ({}, elsewhere)]

    assert [env_of(spec).get(file, "") for spec in specs] == ["/var/run/secrets/nats-ca/tls.crt", ""]
    secrets = [
        volume["secret"] for spec in specs for volume in spec["volumes"] if volume["name"] == "nats-ca"
    ]
    assert [[item["key"] for item in one["items"]] for one in secrets] == [["ca.crt", "tls.crt"], ["ca.crt"]]


@pytest.mark.anyio
async def test_nats_takes_a_renewed_certificate_and_services_go_on(tmp_path: Path) -> None:
    """Six years after its authority was made: there is another one by now, and the first still signs."""
    hosts, then = ("localhost",), NOW - timedelta(days=365 * 6)
    authorities = wanted_authorities({}, then)
    copied = wanted_server(authorities, {}, hosts, then)["ca.crt"]
    now = datetime.now(UTC)
    authorities = wanted_authorities(authorities, now)
    server = wanted_server(authorities, {"ca.crt": copied}, hosts, now)
    ca_file, folder = tmp_path / "copied.crt", tmp_path / "tls"
    folder.mkdir()
    ca_file.write_bytes(copied)

    def write(data: Data) -> None:
        for name, text in data.items():
            (folder / name).write_bytes(text)

    write(server)
    conf = f'tls {{ cert_file: "{folder}/tls.crt", key_file: "{folder}/tls.key", timeout: 60 }}'
    with NatsServer(tmp_path / "nats", extra=conf) as nats:
        url = nats.url.replace("127.0.0.1", "localhost")
        known, unknown = (BusSettings(url=url, ca_file=file) for file in (ca_file, tmp_path / "other.crt"))
        (tmp_path / "other.crt").write_bytes(
            wanted_server(wanted_authorities({}, now), {}, hosts, now)["ca.crt"]
        )
        async with connect(known, "before") as bus:
            write(wanted_server(authorities, {**server, "tls.key": b""}, hosts, now))
            assert nats.pid is not None
            os.kill(nats.pid, signal.SIGHUP)
            await until(lambda: "Reloaded: tls = enabled" in nats.log.read_text())
            async with connect(known, "after"):
                pass
            await bus.flush()
            assert bus.reconnects == 0
        with pytest.raises(PermanentError, match="certificate is refused"):
            async with connect(unknown, "another authority"):
                pytest.fail("connected")


class Cluster:
    """A Kubernetes without Nodes, with the release of helm/sunk."""

    def __init__(self, lab: KubeLab, folder: Path) -> None:
        self.lab = lab
        self.helm = helm_of(lab, "sunk")
        self.folder = folder

    def data(self, name: str, namespace: str = "sunk") -> Data:
        found = json.loads(self.lab.kubectl("-n", namespace, "get", "secret", name, "-o", "json"))
        return {key: base64.b64decode(text) for key, text in found.get("data", {}).items()}

    def both(self) -> tuple[Data, Data]:
        return self.data(AUTHORITY), self.data(SERVER)

    def kubeconfig(self) -> Path:
        api = KubeApi(self.lab.kubeconfig)
        file = self.folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(kubeconfig_with_token(api, api.service_account_token(ACCOUNT, "sunk"))))
        api.close()
        return file

    def start(self, **nats: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - values are free-form.
        """Start what the Pod runs, with its settings."""
        made = {"PATH": os.environ["PATH"], "SUNK_CERTIFICATE_KUBECONFIG": str(self.kubeconfig())}  # noqa: TID251 - a child's environment is made here
        env = {**env_of(pod_specs(rendered(**nats))[ACCOUNT]), **made}
        argv = [sys.executable, "-m", "sunk_nodeset_controller.certificates"]
        return subprocess.Popen(argv, env=env)

    def upgrade(self, **nats: Any) -> None:  # noqa: ANN401 - values are free-form.
        self.helm.upgrade(CHARTS / "sunk", "sunk", sunk(**nats), wait="hookOnly")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with reserved_lab() as lab:
        lab.up(nodes=0)
        for name in ("sunk", "slurm"):
            lab.kubectl("create", "namespace", name)
        made = Cluster(lab, tmp_path_factory.mktemp("certificate"))
        made.helm.install(CHARTS / "sunk", "sunk", sunk(), wait="hookOnly")
        yield made


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_before_the_certificate_is_made_a_slurm_cluster_is_told_to_wait(cluster: Cluster) -> None:
    assert cluster.both() == ({}, {})
    with pytest.raises(helm.HelmError, match="wait until that release is ready"):
        helm_of(cluster.lab, "slurm").install(CHARTS / "slurm", "slurm", SLURM, wait="hookOnly")


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_it_is_made_once_however_often_the_program_is_killed_and_no_upgrade_changes_it(
    cluster: Cluster,
) -> None:
    first = cluster.start()
    try:
        wait_for("an authority", lambda: cluster.data(AUTHORITY), pause_s=0.01)
    finally:
        first.kill()  # Between its two writes, or soon after both.
        first.wait()
    authority = cluster.data(AUTHORITY)
    second = cluster.start()
    try:
        wait_for("a certificate", lambda: cluster.data(SERVER))
    finally:
        second.kill()
        second.wait()
    made = cluster.both()
    assert made[0] == authority

    cluster.upgrade()
    cluster.upgrade(replicas=1, subscribers=["billing"])
    cluster.helm.rollback("sunk", wait="hookOnly")
    assert cluster.both() == made


@pytest.mark.lab
@pytest.mark.timeout(600)
@pytest.mark.anyio
async def test_renewals_change_what_they_must_and_two_at_once_make_one(cluster: Cluster) -> None:
    place = Place(namespace="sunk", authority_secret=AUTHORITY, server_secret=SERVER)
    before, now = cluster.both(), datetime.now(UTC)
    async with connect_kube("test", kubeconfig=cluster.kubeconfig()) as client:
        await keep(client, place, names(), now)
        assert cluster.both() == before

        await keep(client, place, names(), now + timedelta(days=61))
        authority, server = cluster.both()
        assert authority == before[0]
        assert server["ca.crt"] == before[1]["ca.crt"]
        assert server["tls.crt"] != before[1]["tls.crt"]
    with pytest.raises(LabError, match='cannot list resource "secrets"'):
        cluster.lab.kubectl(f"--as=system:serviceaccount:sunk:{ACCOUNT}", "-n", "sunk", "get", "secrets")


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_other_names_make_another_certificate_of_the_same_authority(cluster: Cluster) -> None:
    def hosts() -> set[str]:
        found = x509.load_pem_x509_certificate(cluster.data(SERVER)["tls.crt"])
        return names_of(found)

    authority, before = cluster.both()
    for more in (["bus.example.com", "*.bus.example.com"], []):
        tls = {"generate": True, "names": more}
        cluster.upgrade(tls=tls)
        spec = json.loads(cluster.lab.kubectl("-n", "sunk", "get", "deployment", ACCOUNT, "-o", "json"))
        wanted = env_of(spec["spec"]["template"]["spec"])["SUNK_CERTIFICATE_NAMES"]
        program = cluster.start(tls=tls)
        try:
            wait_for("other names", lambda more=more: hosts() == {*names(), *more})
        finally:
            program.kill()
            program.wait()
        assert set(wanted.split(",")) == {*names(), *more}
        assert (cluster.data(AUTHORITY), cluster.data(SERVER)["ca.crt"]) == (authority, before["ca.crt"])


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_a_slurm_cluster_gets_the_authority_and_no_key_and_takes_over_another_one(cluster: Cluster) -> None:
    slurm = helm_of(cluster.lab, "slurm")
    slurm.install(CHARTS / "slurm", "slurm", SLURM, wait="hookOnly")
    assert cluster.data("slurm-nats-ca", "slurm") == {"ca.crt": cluster.data(SERVER)["ca.crt"]}
    env = "jsonpath={.spec.template.spec.containers[0].env}"
    told = cluster.lab.kubectl("-n", "slurm", "get", "deployment", "slurm-syncer", "-o", env)
    assert {"name": "SUNK_SYNCER_NATS_CA_FILE", "value": "/etc/sunk/nats-ca/ca.crt"} in json.loads(told)

    added = base64.b64encode(cluster.data(SERVER)["ca.crt"] * 2).decode()
    patch = json.dumps({"data": {"ca.crt": added}})
    cluster.lab.kubectl("-n", "sunk", "patch", "secret", SERVER, "--type=merge", "-p", patch)
    slurm.upgrade(CHARTS / "slurm", "slurm", SLURM, wait="hookOnly")
    assert cluster.data("slurm-nats-ca", "slurm") == {"ca.crt": base64.b64decode(added)}

    blind = SLURM | {"checks": {"cluster": False}}
    slurm.upgrade(CHARTS / "slurm", "slurm", blind, wait="hookOnly")
    assert cluster.data("slurm-nats-ca", "slurm") == {"ca.crt": base64.b64decode(added)}


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_uninstall_keeps_it_for_the_next_release_and_slurm_clusters_keep_what_they_copied(
    cluster: Cluster,
) -> None:
    before, copied = cluster.both(), cluster.data("slurm-nats-ca", "slurm")
    cluster.helm.uninstall("sunk")
    assert cluster.both() == before
    alone = SLURM | {"sunk": {"priorityClassName": ""}}
    helm_of(cluster.lab, "slurm").upgrade(CHARTS / "slurm", "slurm", alone, wait="hookOnly")
    assert cluster.data("slurm-nats-ca", "slurm") == copied

    cluster.helm.install(CHARTS / "sunk", "sunk", sunk(), wait="hookOnly")
    assert cluster.both() == before
    helm_of(cluster.lab, "slurm").upgrade(CHARTS / "slurm", "slurm", SLURM, wait="hookOnly")
    assert cluster.data("slurm-nats-ca", "slurm") == copied
