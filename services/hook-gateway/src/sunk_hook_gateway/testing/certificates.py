"""An authority and certificates of its own, on disk, as a Secret has them."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for 127.0.0.1, or a server of another name."""

    def __init__(self, folder: Path, name: str = "authority", *, server: str = "") -> None:
        self._folder = folder
        self._server = x509.DNSName(server) if server else x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.crt"
        """What clients know it by."""
        made = _builder(self._name, self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str = "tls", *, lasts_s: float = 3600.0) -> tuple[Path, Path]:
        """Write a new certificate and its key, over those that are there, and return their files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = _builder(subject, self._name, key.public_key(), lasts_s).add_extension(
            x509.SubjectAlternativeName([self._server]), critical=False
        )
        certificate = made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        files[0].write_bytes(certificate)
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def server(self) -> ssl.SSLContext:
        """Return what a server with a new certificate speaks TLS with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue())
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts_s: float = 3600.0
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(seconds=lasts_s))
    )
