# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Where an API server is, and who we are to it: the Pod that we are, or whom a kubeconfig names.

What must stay true: a token that rotates on disk is followed; a Pod never loads kubernetes_asyncio, whose
models take 67 MB: it is here for kubeconfigs only, with their plugins and providers.

Source: Kubernetes, "Accessing the Kubernetes API from a Pod"; kubernetes_asyncio 36.
"""

import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from sunk_kube.errors import KubeUnavailableError
from sunk_kube.tokens import TokenFile, token_file
from sunk_runtime.errors import ConfigError

MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where every Pod has its token and the certificate of its API server."""
_ADDRESS: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""Kubernetes sets both for every container."""


class Access(NamedTuple):
    """What a session needs."""

    host: str
    """The API server's URL, without a path."""
    tls: ssl.SSLContext
    authorization: Callable[[], Awaitable[str]]
    """The header of that name, as it is now; empty where our certificate says who we are.

    Raises:
        KubeUnavailableError: it cannot be read at present.
    """


def as_pod() -> Access:
    """Return how a Pod reaches the API server of its cluster.

    Raises:
        ConfigError: we are no Pod in a cluster; the text says what is missing.
    """
    name, port = (os.environ.get(one, "") for one in _ADDRESS)  # noqa: TID251 - Kubernetes' own, no setting
    if not name or not port:
        raise ConfigError(f"settings of a Pod in a cluster: {' and '.join(_ADDRESS)} are not set")
    token = TokenFile(MOUNTED / "token")
    try:
        token.read()
        tls = ssl.create_default_context(cafile=MOUNTED / "ca.crt")
    except OSError as error:  # What is wrong with a certificate is one, too.
        raise ConfigError(f"settings of a Pod in a cluster: {error}") from error
    return Access(f"https://{f'[{name}]' if ':' in name else name}:{port}", tls, _read(token))


async def by_kubeconfig(path: Path) -> Access:
    """Return what the current context of a kubeconfig says.

    Raises:
        ConfigError: it does not work; the text says why.
    """
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - 67 MB that only this needs
    from kubernetes_asyncio.config.config_exception import ConfigException  # noqa: PLC0415

    settings = client.Configuration()
    try:
        await config.load_kube_config(
            config_file=str(path), client_configuration=settings, persist_config=False
        )
        token = token_file(path)
        tls = _tls(settings)
    except (ConfigException, OSError) as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from error

    async def authorization() -> str:
        try:
            return await settings.get_api_key_with_prefix("BearerToken") or ""
        except (OSError, ConfigException) as error:
            raise KubeUnavailableError(f"read the API server's token: {error}") from error

    return Access(str(settings.host), tls, authorization if token is None else _read(token))


def _read(token: TokenFile) -> Callable[[], Awaitable[str]]:
    async def authorization() -> str:
        try:
            return f"Bearer {token.read()}"
        except OSError as error:
            raise KubeUnavailableError(f"read the API server's token: {error}") from error

    return authorization


def _tls(settings: Any) -> ssl.SSLContext:  # noqa: ANN401 - the library's class is untyped
    """Return what the library would make of its own settings."""
    made = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        made.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
