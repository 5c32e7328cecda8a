"""Where NATS is, who we are there, and that our password goes to no server that we do not trust."""

import ssl
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from sunk_events.subscription.errors import RefusedError, SubscriberError, UnreachableError


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where NATS is and who we are there."""

    url: str
    user: str
    password: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None

    def servers(self) -> list[str]:
        """Return the address of each server, its scheme in small letters: nats-py knows no other."""
        found = (url.strip().partition("://") for url in self.url.split(","))
        return [f"{scheme.lower()}://{rest}" if rest else scheme for scheme, _, rest in found]

    def secret(self) -> str:
        """Return the password; of a file, as the file is now.

        Raises:
            RefusedError: there is no such file.
        """
        try:
            return self.password_file.read_text().strip() if self.password_file else self.password
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedError(f"cannot read password_file {self.password_file}: {error}") from error

    def trust(self) -> ssl.SSLContext | None:
        """Return whose certificates are accepted, where only TLS will do; None: NATS decides about TLS.

        Raises:
            RefusedError: there is no such file.
        """
        try:
            is_needed = self.ca_file or any(url.startswith("tls:") for url in self.servers())
            return ssl.create_default_context(cafile=self.ca_file) if is_needed else None
        except (OSError, ssl.SSLError) as error:
            raise RefusedError(f"cannot read CA certificates in ca_file {self.ca_file}: {error}") from error


class NoTlsError(NatsError):
    """The server speaks no TLS, and we must have it."""

    def __str__(self) -> str:
        return "NATS does not use TLS, and ca_file or a tls:// address requires it"


class SafeClient(Client):
    """nats-py's, which goes to no server without TLS where TLS is asked for."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - nats-py's
        """Use TLS where we must, whatever the server says: nats-py would send the password in clear."""
        if initial_connection and self.options.get("tls"):
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NoTlsError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


def why_not_open(address: Address, error: Exception, cause: Exception) -> SubscriberError:
    """Return our error for *error* of nats-py; *cause*: what it reported of the connection before."""
    if "authorization" in f"{error} {cause}".lower():
        return RefusedError(
            f"NATS at {address.url} refuses user {address.user!r}: wrong user or password. "
            "A team in nats.subscribers of helm/sunk has the user subscriber-<team>, its password in the "
            "Secret sunk-nats-users under that name"
        )
    if isinstance(cause, NoTlsError):
        return RefusedError(str(cause))
    if isinstance(cause, ssl.SSLCertVerificationError):
        return RefusedError(
            f"the certificate of NATS is refused: {cause.verify_message}. Set ca_file to a file with its "
            "CA, and use a host in url that the certificate names"
        )
    return UnreachableError(f"no NATS at {address.url}: {cause or type(cause).__name__}")
