"""TLS of NATS as the charts set it up: on real nats-servers with what they render."""

import re
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab import charts
from sunk_lab.kube.certificates import Authority
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_ports
from sunk_lab.processes import Processes
from sunk_nodeset_controller.certificates.decision import wanted_authorities, wanted_server
from sunk_runtime.errors import PermanentError, TransientError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.mirroring.keeping import keep, wanted
from sunk_runtime.testing import until

HELM: Final = Path(__file__).parents[2] / "helm"
PASSWORD: Final = "p1"  # noqa: S105 - of servers of this test alone.
CLUSTERS: Final = [{"name": "prod", "namespace": "slurm"}]
NAMES: Final = "DNS:localhost,IP:127.0.0.1"


def sunk(**nats: Any) -> charts.Objects:  # noqa: ANN401 - values are free-form.
    values = {"clusters": CLUSTERS, "nats": {"tls": {"existingSecret": "nats-tls"}} | nats}
    return charts.render(helm.Chart.load(HELM / "sunk"), values, name="sunk", namespace="sunk")


def slurm(**nats: Any) -> charts.Objects:  # noqa: ANN401 - values are free-form.
    values = {
        "clusterName": "prod",
        "nats": {"existingSecret": "passwords"} | nats,
        "compute": {"nodes": {"gpu": {"gresGpu": "h100:8"}}},
        "directory": {},
    }
    return charts.render(helm.Chart.load(HELM / "slurm"), values, name="slurm", namespace="slurm")


class Certificate:
    """What the Secret holds, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nats-tls"
        self.folder.mkdir()
        self.authority = Authority(folder / "authority")
        self.authority.found()
        (self.folder / "ca.crt").write_bytes(self.authority.crt().read_bytes())
        self.renew()

    def renew(self) -> None:
        for old in (self.authority.crt("server"), self.authority.key("server")):
            old.unlink(missing_ok=True)
        self.authority.issue("server", "server", names=NAMES)
        (self.folder / "tls.key").write_bytes(self.authority.key("server").read_bytes())
        (self.folder / "tls.crt").write_bytes(self.authority.crt("server").read_bytes())


class MadeCertificate(Certificate):
    """The same, as `nats.tls.generate` has it made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nats-tls"
        self.folder.mkdir()
        self._authorities = wanted_authorities({}, datetime.now(UTC))
        self.renew()

    def renew(self) -> None:
        found = wanted_server(self._authorities, {}, ("localhost",), datetime.now(UTC))
        for name, data in found.items():
            (self.folder / name).write_bytes(data)


@pytest.fixture(params=[Certificate, MadeCertificate], ids=["brought", "made"])
def certificate(request: pytest.FixtureRequest, tmp_path: Path) -> Certificate:
    return request.param(tmp_path)


def address(server: NatsServer) -> str:
    """Return where *server* is, by the name that both certificates have."""
    return server.url.replace("127.0.0.1", "localhost")


def conf(text: str, certificate: Certificate, **replaced: str) -> str:
    """Return what the chart says of a server, without what the lab says of it."""
    for line in (r'^listen: "0.0.0.0:4222"$', r"^server_name.*$", r"^http: .*$", r"^pid_file.*$"):
        text = re.sub(line, "", text, flags=re.MULTILINE)
    text = re.sub(r"^jetstream \{.*?^\}", "", text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("feature_flags { js_ack_fc_v2: false }", "")
    text = re.sub(r"\$PASSWORD_\w+", PASSWORD, text).replace("/etc/nats-tls", str(certificate.folder))
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text.replace("timeout: 5", "timeout: 60")


@pytest.fixture
def bus_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    return file


@pytest.fixture
def servers(certificate: Certificate, tmp_path: Path) -> Generator[tuple[NatsServer, NatsServer]]:
    made = sunk(subscribers=["billing"])
    port = free_ports(1)
    ours = conf(made["ConfigMap", "sunk-nats"]["data"]["one.conf"], certificate)
    theirs = conf(made["ConfigMap", "sunk-nats-teams"]["data"]["teams.conf"], certificate)
    ours = ours.replace("0.0.0.0:7422", f"127.0.0.1:{port}")
    theirs = theirs.replace("$LINK", f'"nats-leaf://teams:{PASSWORD}@localhost:{port}"')
    with (
        NatsServer(tmp_path / "ours", extra=ours) as first,
        NatsServer(tmp_path / "theirs", domain="teams", extra=theirs) as second,
    ):
        yield first, second


@pytest.mark.anyio
async def test_services_and_the_server_of_other_teams_speak_tls(
    servers: tuple[NatsServer, NatsServer], certificate: Certificate, bus_file: Path
) -> None:
    ours, theirs = servers
    ca_file = certificate.folder / "ca.crt"
    admin = BusSettings(url=address(ours), user="admin", password_file=bus_file, ca_file=ca_file)
    keeper = BusSettings(url=address(theirs), user="keeper", password_file=bus_file, ca_file=ca_file)
    with pytest.raises(PermanentError, match="NATS uses TLS"):
        async with connect(BusSettings(url=address(ours), user="admin", password_file=bus_file), "test"):
            pytest.fail("connected")
    async with connect(admin, "test") as bus, connect(keeper, "test") as mirrors:
        await bus.provision("prod", admin)
        await bus.publish("sunk.ev.prod.x", b"{}")
        facts = wanted("prod", facts_max_bytes=1 << 20, facts_max_age_s=60)[0]

        async def is_mirrored() -> bool:
            try:
                await keep(mirrors, facts)
            except TransientError:
                return False  # The link is not there yet.
            return await mirrors.js.call("$JS.API.STREAM.INFO.SUNK_EV_prod") != {} and bool(
                (await mirrors.js.stream_info("SUNK_EV_prod")).state.messages
            )

        await until(is_mirrored)


@pytest.mark.anyio
async def test_the_reloader_has_a_renewed_certificate_taken_up_and_no_connection_breaks(
    certificate: Certificate, bus_file: Path, tmp_path: Path
) -> None:
    text = conf(sunk()["ConfigMap", "sunk-nats"]["data"]["one.conf"], certificate)
    processes = Processes(tmp_path / "reloader")
    pid_file = tmp_path / "nats.pid"
    with NatsServer(tmp_path / "nats", extra=text) as server:
        ca_file = certificate.folder / "ca.crt"
        found = BusSettings(url=address(server), user="admin", password_file=bus_file, ca_file=ca_file)
        async with connect(found, "test") as bus:
            pid_file.write_text(str(server.pid))
            program = [sys.executable, HELM / "sunk/files/reload.py", pid_file, certificate.folder, "0.1"]
            processes.spawn("reloader", program)
            try:
                await until(lambda: server.log.read_text().count("Reloaded: tls = enabled") == 1)
                certificate.renew()
                await until(lambda: server.log.read_text().count("Reloaded: tls = enabled") > 1)
            finally:
                processes.kill("reloader")
            await bus.flush()
            assert bus.reconnects == 0
            async with connect(found, "another"):
                pass


@pytest.mark.anyio
async def test_three_servers_find_each_other_over_tls(
    certificate: Certificate, bus_file: Path, tmp_path: Path
) -> None:
    text = conf(sunk(replicas=3)["ConfigMap", "sunk-nats"]["data"]["three.conf"], certificate)
    first = free_ports(3)
    servers: list[NatsServer] = []
    for number in range(3):
        own = text.replace("0.0.0.0:6222", f"127.0.0.1:{first + number}")
        for other in range(3):
            host = f"sunk-nats-{other}.sunk-nats-headless.sunk:6222"
            own = own.replace(host, f"localhost:{first + other}")
        servers.append(NatsServer(tmp_path / f"n{number}", extra=f"server_name: n{number}\n{own}"))
    url = ""
    try:
        for server in servers:
            server.start()
        url = ",".join(address(server) for server in servers)
        ca_file = certificate.folder / "ca.crt"
        found = BusSettings(url=url, user="admin", password_file=bus_file, ca_file=ca_file, replicas=3)
        async with connect(found, "test") as bus:
            await bus.provision(
                "prod", found
            )  # A stream has three replicas only where three servers are one.
    finally:
        for server in servers:
            server.kill()


def test_without_a_certificate_nothing_of_tls_is_rendered() -> None:
    made = sunk(tls=None, subscribers=["billing"])
    pods = [one["spec"]["template"]["spec"] for (kind, _), one in made.items() if kind == "StatefulSet"]

    assert "tls" not in made["ConfigMap", "sunk-nats"]["data"]["one.conf"]
    assert "tls" not in made["ConfigMap", "sunk-nats-teams"]["data"]["teams.conf"]
    assert [pod for pod in pods if "shareProcessNamespace" in pod] == []
    assert "nats-ca" not in str(slurm(tls=None))


def test_while_one_changes_from_one_to_the_other_clients_without_tls_are_let_in() -> None:
    made = sunk(tls={"existingSecret": "nats-tls", "required": False})

    assert "allow_non_tls: true" in made["ConfigMap", "sunk-nats"]["data"]["one.conf"]


def test_no_service_has_the_key_of_the_certificate() -> None:
    made = sunk(subscribers=["billing"], replicas=3) | slurm(tls={"caSecret": "nats-ca"})
    for (kind, name), one in made.items():
        if kind not in ("Deployment", "StatefulSet") or name.startswith("sunk-nats"):
            continue
        for volume in one["spec"]["template"]["spec"].get("volumes", []):
            if volume.get("secret", {}).get("secretName") in ("nats-tls", "nats-ca"):
                keys = {item["key"] for item in volume["secret"]["items"]}
                shown = {"tls.crt"} if name == "sunk-nodeset-controller" else set[str]()
                assert keys == {"ca.crt"} | shown, name


def test_every_service_of_a_slurm_cluster_has_the_authority() -> None:
    made = slurm(tls={"caSecret": "nats-ca"})
    services = [
        one["spec"]["template"]["spec"]["containers"][0]
        for (kind, _), one in made.items()
        if kind == "Deployment" and "NATS_URL" in str(one)
    ]

    assert len(services) == 4
    for container in services:
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        (value,) = (value for name, value in env.items() if name.endswith("_NATS_CA_FILE"))
        assert any(value == f"{mount['mountPath']}/ca.crt" for mount in container["volumeMounts"])
