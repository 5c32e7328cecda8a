"""The certificates: ours, and the authority by which the API server's front proxy is known.

What must stay true: what is trusted is what the API server publishes now. A change of it, or of our own
certificate, ends the process, and the platform starts it with the new one: this is rarer than once a month,
and a TLS context that connections are made from cannot be changed.
"""

import ssl
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeNotFoundError
from sunk_kube.resources import CONFIG_MAPS
from sunk_runtime.errors import ConfigError, TransientError
from sunk_view.callers import FrontProxy, front_proxy

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
LOOK_S: Final = 30.0


class ChangedError(TransientError):
    """What is trusted, or shown, has changed: start again."""


async def read_front_proxy(kube: KubeClient) -> FrontProxy:
    """Return how the front proxy is known now.

    Raises:
        ConfigError: the API server has no aggregation layer.
        KubeUnavailableError, KubeRejectedError: it cannot be read.
    """
    try:
        found = await kube.get(CONFIG_MAPS, NAME, NAMESPACE)
    except KubeNotFoundError as error:
        raise ConfigError(f"{error}: the API server has no aggregation layer") from error
    return front_proxy(found.data)


def context(proxy: FrontProxy, cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """Return what the API server connects with: nobody else's certificate passes.

    Raises:
        ConfigError: a file cannot be read, or the authority is no certificate.
    """
    try:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(cert_file, key_file)
        made.load_verify_locations(cadata=proxy.authority)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{cert_file}, {key_file}, requestheader-client-ca-file: {error}") from error
    made.verify_mode = ssl.CERT_REQUIRED
    return made


class Watch:
    """Looks whether anything of it has changed."""

    def __init__(self, kube: KubeClient, proxy: FrontProxy, *files: Path) -> None:
        self._kube = kube
        self._proxy = proxy
        self._files = files
        self._before = self._content()

    async def run(self, *, look_s: float = LOOK_S) -> None:
        """Return never; raise `ChangedError` once something has changed."""
        while True:
            await anyio.sleep(look_s)
            if await anyio.to_thread.run_sync(self._content) != self._before:
                raise ChangedError("the certificate was renewed: starting again with it")
            try:
                now = await read_front_proxy(self._kube)
            except TransientError:
                continue  # An API server that is away asks us nothing.
            if now != self._proxy:
                raise ChangedError("the API server's front proxy has another authority: starting again")

    def _content(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() if file.exists() else b"" for file in self._files)
