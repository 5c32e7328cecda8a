"""Keys and certificates: made, and read from PEM.

They have what strict verifiers ask for (RFC 5280): key usages, and key identifiers of subject and authority.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVER_LIFE: Final = timedelta(days=90)
_CLOCKS_DIFFER: Final = timedelta(hours=1)
"""A certificate holds from a little before it was made: clocks of other Nodes may be behind."""


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, as PEM."""

    crt: bytes
    key: bytes


def new_authority(name: str, now: datetime) -> Pair:
    """Return a new authority, which signs certificates of servers and no other authority's."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    usage = _usage(signs=True)
    made = (
        _certificate(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def new_server(authority: Pair, names: Sequence[str], now: datetime) -> Pair:
    """Return a new certificate of *names* that *authority* signs, for servers and for clients.

    Raises:
        ValueError: *authority* is not to be read.
    """
    issuer = x509.load_pem_x509_certificate(authority.crt)
    signer = load_pem_private_key(authority.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the authority is not of the kind that this program makes")  # noqa: TRY004 - of its content
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    known_as = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = (
        _certificate(_named("sunk"), issuer.subject, key.public_key(), now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(known_as, critical=False)
        .add_extension(by, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pair(made, key)


def is_pair(certificate: x509.Certificate, key: bytes) -> bool:
    """Return whether *key*, as PEM, is that of *certificate*."""
    try:
        return load_pem_private_key(key, password=None).public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def is_authority(certificate: x509.Certificate, key: bytes) -> bool:
    """Return whether *key* is that of *certificate*, and of our kind, so that it can sign."""
    return isinstance(certificate.public_key(), ec.EllipticCurvePublicKey) and is_pair(certificate, key)


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether *authority* has signed *certificate*."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def names_of(certificate: x509.Certificate) -> set[str]:
    """Return the host names of *certificate*."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):  # None, or what cannot be read.
        return set()
    return set(found.value.get_values_for_type(x509.DNSName))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(certificate.public_bytes(Encoding.PEM), written)
