"""TLS to a real nats-server: what we accept, what we say of what we do not, and renewals."""

import os
import signal
import socket
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Final

import anyio
import pytest

from sunk_lab.kube.certificates import Authority
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import ConfigError, PermanentError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import WITHIN_S, until

pytestmark = pytest.mark.anyio

OUR_NAME: Final = "IP:127.0.0.1"
USERS: Final = '\nauthorization { users: [{user: "syncer", password: "right"}] }\n'


class Certificates:
    """An authority, and what a server shows of it."""

    def __init__(self, folder: Path, names: str = OUR_NAME) -> None:
        self._folder = folder
        self._names = names
        self.ca_file = folder / "ca.pem"
        self.renew("ca-1")

    @property
    def conf(self) -> str:
        """What nats-server's configuration has of them."""
        files = f'cert_file: "{self._folder}/tls.crt", key_file: "{self._folder}/tls.key"'
        return f"tls {{ {files}, timeout: 60 }}{USERS}"

    def renew(self, authority: str) -> None:
        """Have a new certificate of *authority*; clients then know all authorities that there were."""
        made = Authority(self._folder / authority)
        made.found()
        for old in (made.crt("server"), made.key("server")):
            old.unlink(missing_ok=True)
        made.issue("server", "server", names=self._names)
        for kind, file in (("crt", made.crt("server")), ("key", made.key("server"))):
            new = self._folder / f"{kind}.new"
            new.write_bytes(file.read_bytes())
            new.rename(self._folder / f"tls.{kind}")
        known = self.ca_file.read_bytes() if self.ca_file.exists() else b""
        if made.crt().read_bytes() not in known:
            self.ca_file.write_bytes(known + made.crt().read_bytes())

    def shown(self) -> str:
        return (self._folder / "tls.crt").read_text()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def server(certificates: Certificates, tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats", extra=certificates.conf) as server:
        yield server


def settings(server: NatsServer, folder: Path, ca_file: Path | None) -> BusSettings:
    password = folder / "password"
    password.write_text("right")
    return BusSettings(url=server.url, user="syncer", password_file=password, ca_file=ca_file)


async def refused(found: BusSettings, why: str) -> None:
    with anyio.fail_after(WITHIN_S), pytest.raises(PermanentError, match=why):
        async with connect(found, "syncer"):
            pytest.fail("connected")


async def test_a_service_that_knows_the_authority_connects(
    server: NatsServer, certificates: Certificates, tmp_path: Path
) -> None:
    async with connect(settings(server, tmp_path, certificates.ca_file), "syncer") as bus:
        await bus.provision("c1", BusSettings())


async def test_the_certificate_of_another_authority_is_refused(server: NatsServer, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    other.found()

    await refused(
        settings(server, tmp_path, other.crt()), r"certificate is refused: .*must be in nats_ca_file"
    )


async def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, names="DNS:somewhere.else")
    with NatsServer(tmp_path / "nats", extra=certificates.conf) as server:
        found = settings(server, tmp_path, certificates.ca_file)
        await refused(found, r"127\.0\.0\.1.*the host of nats_url")


async def test_without_an_authority_a_server_with_tls_says_which_setting_is_missing(
    server: NatsServer, tmp_path: Path
) -> None:
    await refused(settings(server, tmp_path, None), r"NATS uses TLS.*Set nats_ca_file")


async def test_nothing_is_sent_to_a_server_without_tls(certificates: Certificates, tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", extra=USERS) as server:
        await refused(settings(server, tmp_path, certificates.ca_file), "NATS does not use TLS")


async def test_while_a_server_takes_both_a_service_with_an_authority_uses_tls(
    certificates: Certificates, tmp_path: Path
) -> None:
    extra = f"{certificates.conf}allow_non_tls: true"
    with NatsServer(tmp_path / "nats", extra=extra) as server:
        async with connect(settings(server, tmp_path, None), "syncer") as bus:
            await bus.flush()
        wrong = Authority(tmp_path / "other")
        wrong.found()
        await refused(settings(server, tmp_path, wrong.crt()), "certificate is refused")
        async with connect(settings(server, tmp_path, certificates.ca_file), "syncer") as bus:
            await bus.flush()


async def test_a_renewed_certificate_is_shown_after_a_reload_and_no_connection_breaks(
    server: NatsServer, certificates: Certificates, tmp_path: Path
) -> None:
    found = settings(server, tmp_path, certificates.ca_file)
    async with connect(found, "syncer") as bus:
        await bus.provision("c1", BusSettings())
        certificates.renew("ca-1")
        os.kill(server.pid or 0, signal.SIGHUP)
        await until(
            lambda: presented(server, certificates.ca_file) == ssl.PEM_cert_to_DER_cert(certificates.shown())
        )

        await bus.publish("sunk.ev.c1.x", b"")
        assert bus.reconnects == 0
        async with connect(found, "another"):
            pass


async def test_a_renewed_authority_counts_when_the_connection_comes_back(
    server: NatsServer, certificates: Certificates, tmp_path: Path
) -> None:
    async with connect(settings(server, tmp_path, certificates.ca_file), "syncer") as bus:
        certificates.renew("ca-2")
        server.restart()
        await until(lambda: bus.reconnects == 1)


def presented(server: NatsServer, ca_file: Path) -> bytes | None:
    """Return the certificate that *server* shows now."""
    context = ssl.create_default_context(cafile=ca_file)
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 10) as plain:
        plain.recv(65536)  # What it says of itself.
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            return tls.getpeercert(binary_form=True)


async def test_a_file_without_certificates_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match="nats_ca_file"):
        async with connect(BusSettings(ca_file=tmp_path / "empty"), "syncer"):
            pytest.fail("connected")
