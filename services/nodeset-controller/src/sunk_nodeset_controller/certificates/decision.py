"""What the two Secrets should hold, by what they hold and what time it is.

The authorities' Secret has pairs `N.crt` and `N.key`. The server's has `tls.crt`, `tls.key`, and in `ca.crt`
all authorities that clients are to believe. What must stay true:

- what is there and still good stays as it is, so another run changes nothing;
- clients know an authority for years before a certificate needs it;
- an authority that cannot be read is never taken for none: another one would lock clients out;
- after a clock was wrong, the next look with a right one puts all in order: no authority is deleted, and
  what is not valid yet signs nothing and is not served.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from sunk_nodeset_controller.certificates import issuing
from sunk_nodeset_controller.certificates.issuing import Pair
from sunk_runtime.errors import PermanentError

Data = Mapping[str, bytes]
"""What a Secret holds."""

SERVER_LEFT: Final = timedelta(days=30)
"""With less left, the server's certificate is made again."""
AUTHORITY_LEFT: Final = timedelta(days=1825)
"""With less left in the newest authority, there is another one, which signs when this one no longer can."""
_FILE: Final = re.compile(r"([1-9][0-9]{0,8})\.(?:crt|key)", re.ASCII)


class AuthorityError(PermanentError):
    """The Secret of the authorities holds what is none."""


class Authority(msgspec.Struct, frozen=True):
    """One that can sign."""

    number: int
    pair: Pair
    certificate: x509.Certificate


def wanted_authorities(found: Data, now: datetime) -> Data:
    """Return what the Secret of the authorities should hold.

    Raises:
        AuthorityError: It holds what cannot be read; says which key.
    """
    known = _authorities(found)
    if any(_is_valid(one.certificate, now, AUTHORITY_LEFT) for one in known):
        return found
    number = max((one.number for one in known), default=0) + 1
    made = issuing.new_authority(f"sunk authority {number}", now)
    return {**found, f"{number}.crt": made.crt, f"{number}.key": made.key}


def wanted_server(authorities: Data, found: Data, names: Sequence[str], now: datetime) -> Data:
    """Return what the server's Secret should hold, with *authorities* as `wanted_authorities` says.

    Raises:
        AuthorityError: As `wanted_authorities`.
    """
    ours = _authorities(authorities)
    # Those that clients believe already stay, even if our Secret has lost them.
    before = _certificates(found.get("ca.crt", b""))
    believed = {
        one.fingerprint(hashes.SHA256()): one for one in (*before, *(one.certificate for one in ours))
    }
    valid = [one for one in believed.values() if one.not_valid_after_utc > now]
    bundle = b"".join(one.public_bytes(Encoding.PEM) for one in valid)
    if _is_good(found, valid, names, now):
        return {"tls.crt": found["tls.crt"], "tls.key": found["tls.key"], "ca.crt": bundle}
    # The oldest that outlives it: all clients have known that one for the longest time.
    signer = next(one for one in ours if _is_valid(one.certificate, now, issuing.SERVER_LIFE))
    made = issuing.new_server(signer.pair, names, now)
    return {"tls.crt": made.crt, "tls.key": made.key, "ca.crt": bundle}


def _is_good(found: Data, believed: Sequence[x509.Certificate], names: Sequence[str], now: datetime) -> bool:
    """Return whether the server's certificate can stay."""
    chain = _certificates(found.get("tls.crt", b""))
    if not chain:
        return False
    own = chain[0]
    return (
        _is_valid(own, now, SERVER_LEFT)
        and set(names) == issuing.names_of(own)
        and issuing.is_pair(own, found.get("tls.key", b""))
        and any(issuing.is_signed_by(own, authority) for authority in believed)
    )


def _is_valid(certificate: x509.Certificate, now: datetime, left: timedelta) -> bool:
    """Return whether it is valid now, and for *left* from now on."""
    return certificate.not_valid_before_utc <= now and certificate.not_valid_after_utc - now >= left


def _authorities(found: Data) -> list[Authority]:
    """Return what the Secret has, the oldest first."""
    made: list[Authority] = []
    for number in sorted({int(_number(name)) for name in found}):
        crt, key = found.get(f"{number}.crt", b""), found.get(f"{number}.key", b"")
        certificates = _certificates(crt)
        if len(certificates) != 1 or not issuing.is_authority(certificates[0], key):
            raise AuthorityError(
                f"{number}.crt and {number}.key are not a certificate and its key as this program makes "
                "them: restore the former files, or remove both. After a removal, clients need the new "
                "ca.crt before the server's certificate is renewed"
            )
        made.append(Authority(number, Pair(crt, key), certificates[0]))
    return made


def _number(name: str) -> str:
    found = _FILE.fullmatch(name)
    if not found:
        raise AuthorityError(
            f"{name[:80]!r} does not belong in this Secret, whose keys are called 1.crt, 1.key: remove it"
        )
    return found[1]


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates of *pem*; none where it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []
