"""What the Secrets of NATS' certificate should hold: made once, kept, renewed in time."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import ClientVerifier, PolicyBuilder, Store
from hypothesis import given, settings
from hypothesis import strategies as st

from sunk_nodeset_controller.certificates import issuing
from sunk_nodeset_controller.certificates.decision import (
    AUTHORITY_LEFT,
    SERVER_LEFT,
    AuthorityError,
    Data,
    wanted_authorities,
    wanted_server,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("sunk-nats.sunk", "*.sunk-nats-headless.sunk")
HOST = "sunk-nats.sunk"


class World:
    """Both Secrets, and the ca.crt that a Slurm cluster copied at its last upgrade."""

    def __init__(self) -> None:
        self.authorities: Data = {}
        self.server: Data = {}
        self.copied = b""

    def look(self, now: datetime) -> None:
        self.authorities = wanted_authorities(self.authorities, now)
        self.server = wanted_server(self.authorities, self.server, NAMES, now)

    def upgrade_slurm(self) -> None:
        self.copied = self.server["ca.crt"]

    def is_believed(self, now: datetime, ca: bytes | None = None) -> bool:
        """Return whether a client with *ca* accepts the server at *now*."""
        store = Store(x509.load_pem_x509_certificates(self.copied if ca is None else ca))
        verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(HOST))
        try:
            verifier.verify(x509.load_pem_x509_certificate(self.server["tls.crt"]), [])
        except x509.verification.VerificationError:
            return False
        return True


@pytest.fixture
def world() -> World:
    made = World()
    made.look(NOW)
    made.upgrade_slurm()
    return made


def test_the_first_look_makes_an_authority_and_a_certificate_that_clients_accept(world: World) -> None:
    assert sorted(world.authorities) == ["1.crt", "1.key"]
    assert world.is_believed(NOW)
    assert b"PRIVATE" not in world.server["ca.crt"] + world.server["tls.crt"]


def test_servers_accept_it_of_each_other_as_clients(world: World) -> None:
    store = Store(x509.load_pem_x509_certificates(world.copied))
    verifier: ClientVerifier = PolicyBuilder().store(store).time(NOW).build_client_verifier()

    verifier.verify(x509.load_pem_x509_certificate(world.server["tls.crt"]), [])


def test_openssl_reads_what_is_made(world: World, tmp_path: Path) -> None:
    for name, data in world.server.items():
        (tmp_path / name).write_bytes(data)
    context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    assert len(context.get_ca_certs()) == 1


def test_another_look_changes_nothing_until_a_renewal_is_due(world: World) -> None:
    before = world.authorities, world.server
    world.look(NOW + issuing.SERVER_LIFE - SERVER_LEFT - timedelta(seconds=1))
    assert (world.authorities, world.server) == before

    world.look(NOW + issuing.SERVER_LIFE - SERVER_LEFT + timedelta(seconds=1))
    assert world.authorities == before[0]
    assert world.server["ca.crt"] == before[1]["ca.crt"]
    assert world.server["tls.crt"] != before[1]["tls.crt"]


@pytest.mark.parametrize("days", [61, 3 * 365, 6 * 365, 3651, 30 * 365])
def test_a_clock_that_was_ahead_for_a_look_is_mended_by_the_next_one(world: World, days: int) -> None:
    authority = world.authorities["1.key"]
    world.look(NOW + timedelta(days=days))
    world.look(NOW)

    assert world.authorities["1.key"] == authority
    assert world.is_believed(NOW, world.server["ca.crt"])
    assert world.is_believed(NOW)


def test_an_authority_of_another_kind_than_ours_is_named(world: World) -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "theirs")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + issuing.AUTHORITY_LIFE)
    world.authorities = {
        "1.crt": builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM),
        "1.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }

    with pytest.raises(AuthorityError, match=r"1\.crt and 1\.key are not a certificate and its key"):
        world.look(NOW)


def test_whoever_is_killed_after_the_authorities_were_written_goes_on_with_them(world: World) -> None:
    again = World()
    again.authorities = world.authorities
    again.look(NOW)

    assert again.authorities == world.authorities
    assert again.is_believed(NOW, world.copied)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"tls.key": b""}, id="no key"),
        pytest.param({"tls.crt": b"-----BEGIN CERTIFICATE-----"}, id="half a certificate"),
        pytest.param({"tls.crt": b"\xff\x00"}, id="no text"),
        pytest.param({"ca.crt": b"x"}, id="no authority"),
    ],
)
def test_what_is_damaged_at_the_server_is_made_again_by_the_same_authority(
    world: World, broken: Data
) -> None:
    world.server = {**world.server, **broken}
    world.look(NOW)

    assert world.is_believed(NOW)
    assert world.server["ca.crt"] == world.copied


def test_a_key_of_another_certificate_is_not_kept(world: World) -> None:
    other = World()
    other.look(NOW)
    world.server = {**world.server, "tls.key": other.server["tls.key"]}
    world.look(NOW)

    own = x509.load_pem_x509_certificate(world.server["tls.crt"])
    assert issuing.is_pair(own, world.server["tls.key"])


def test_a_name_that_is_added_is_in_the_next_certificate(world: World) -> None:
    made = wanted_server(world.authorities, world.server, (*NAMES, "more.sunk"), NOW)

    assert issuing.names_of(x509.load_pem_x509_certificate(made["tls.crt"])) == {*NAMES, "more.sunk"}


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        pytest.param({"1.crt": b"rubbish"}, r"1\.crt and 1\.key", id="rubbish"),
        pytest.param({"1.key": b""}, r"1\.crt and 1\.key", id="no key"),
        pytest.param({"ca.crt": b""}, r"'ca\.crt' does not belong in this Secret", id="another name"),
    ],
)
def test_an_authority_that_cannot_be_read_is_not_replaced_but_named(
    world: World, broken: Data, why: str
) -> None:
    with pytest.raises(AuthorityError, match=why):
        wanted_authorities({**world.authorities, **broken}, NOW)


def test_lost_authorities_lock_no_client_out_before_the_next_renewal(world: World) -> None:
    world.authorities = {}
    world.look(NOW)
    assert world.is_believed(NOW)

    world.upgrade_slurm()  # Within two months.
    later = NOW + issuing.SERVER_LIFE - SERVER_LEFT + timedelta(days=1)
    world.look(later)
    assert world.is_believed(later)


def test_clients_know_an_authority_for_years_before_it_signs(world: World) -> None:
    """A Slurm cluster is upgraded every four years; the bus looks each month."""
    now, upgraded = NOW, NOW
    signers = set[bytes]()
    while now < NOW + timedelta(days=365 * 40):
        now += timedelta(days=30)
        world.look(now)
        if now - upgraded > timedelta(days=365 * 4):
            world.upgrade_slurm()
            upgraded = now
        assert world.is_believed(now), now
        assert len(world.authorities) <= 18  # A pair in five years; none is deleted.
        own = x509.load_pem_x509_certificate(world.server["tls.crt"])
        signers.add(own.issuer.public_bytes())

    assert len(signers) >= 4


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 5000), max_size=6))
def test_after_any_time_away_the_own_bundle_vouches_for_the_certificate(days: list[int]) -> None:
    world, now = World(), NOW
    for pause in days:
        now += timedelta(days=pause)
        world.look(now)
        before = dict(world.server)
        world.look(now)

        assert world.is_believed(now, world.server["ca.crt"])
        assert world.server == before
        left = x509.load_pem_x509_certificate(world.server["tls.crt"]).not_valid_after_utc - now
        assert left >= SERVER_LEFT
        newest = max(
            x509.load_pem_x509_certificate(data).not_valid_after_utc
            for name, data in world.authorities.items()
            if name.endswith(".crt")
        )
        assert newest - now >= AUTHORITY_LEFT
