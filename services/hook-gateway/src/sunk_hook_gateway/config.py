"""Every knob of the hook gateway, its unit and its reason."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_runtime.config import load
from sunk_runtime.errors import ConfigError
from sunk_runtime.http_door import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS
from sunk_runtime.settings import Seconds, ServiceSettings

PREFIX = "SUNK_HOOK_GATEWAY_"


class Config(ServiceSettings, frozen=True, kw_only=True):
    """Read once, at start. Durations are in seconds and end in ``_s``."""

    cluster: ClusterName
    """The Slurm cluster's name."""
    namespace: str = "slurm"
    """Namespace of the NodeSet Pods of this cluster. Calls from Pods of other namespaces are refused."""
    kubeconfig: Path | None = None
    """How to reach the API server for its published keys; empty inside a cluster."""
    token_audience: str = "sunk-hooks"  # noqa: S105 - an audience, not a secret
    """What a NodeSet Pod's projected token must be meant for."""
    token_issuer: str = ""
    """The required issuer of the token. Empty: the issuer that the API server names."""
    token_keys_file: Path | None = None
    """A JWKS file instead of the API server's published keys; needs ``token_issuer``."""
    static_token_file: Path | None = None
    """Outside Kubernetes: one token for all nodes, in place of Pod tokens; a second line is the old one."""
    user_tokens_socket: Path | None = None
    """Unix socket of ``sunk_hook_gateway.token_checker``, which tells Slurm's users by their tokens, so that
    this process never sees Slurm's key. Empty: users get no answers."""
    tls_cert_file: Path | None = None
    """The certificate with its chain: hooks are then answered with TLS, at ``tls_port``."""
    tls_key_file: Path | None = None
    """The certificate's key. Both files are looked at each 10 s, so they may be renewed."""
    tls_port: Annotated[int, Meta(ge=1, le=65535)] = 8443
    """Where hooks are answered if there is a certificate; ``http_port`` keeps the rest."""
    tls_required: bool = True
    """Whether hooks without TLS are refused if there is a certificate. False: they are answered too, at
    ``hooks_port``, while nodes change from one to the other."""
    hooks_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Where hooks are answered without TLS; 0: at ``http_port``, next to ``/metrics``."""
    prehook_deadline_s: Seconds = 50.0
    """How long a prolog's call blocks if it names no deadline. PrologEpilogTimeout is 30 s more."""
    prehook_deadline_max_s: Seconds = 3600.0
    """The longest deadline that a call may name."""
    release_wait_s: Seconds = 4.0
    """How long a release blocks while a Pod is still there; the scripts repeat it."""
    reboots: bool = True
    """Whether Nodes are rebooted on request. False: each such call is refused (403)."""
    slurmctld_accounts: tuple[str, ...] = ()
    """ServiceAccounts of ``namespace`` that only slurmctld's Pod has: it may have any node rebooted."""
    poll_s: Seconds = 45.0
    """How long an outcome poll, a process on its node, is held; common proxies cut it after a minute."""
    max_calls: Annotated[int, Meta(ge=1)] = 12000
    """Calls of nodes held at once, and as many of placeholders. One more is answered with "try again"."""
    max_calls_per_node: Annotated[int, Meta(ge=1)] = 512
    """Calls of one node held at once: one that went wild leaves room for the others. A placeholder has 16."""
    max_connections: Annotated[int, Meta(ge=1)] = MAX_CONNECTIONS
    """Connections of each port at once, as far as the process may open files: over that the one that waits
    longest for a request to answer ends."""
    max_connections_per_address: Annotated[int, Meta(ge=1)] = MAX_CONNECTIONS_PER_ADDRESS
    """The same for one address; more where a proxy or NAT stands between many nodes and this service."""


def read_config(arguments: Sequence[str] = ()) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing, not allowed, or contradicts another.
    """
    config = load(Config, os.environ, PREFIX, arguments)
    if config.static_token_file and config.token_keys_file:
        raise ConfigError(f"{PREFIX}STATIC_TOKEN_FILE and {PREFIX}TOKEN_KEYS_FILE: set only one of them")
    if config.token_keys_file and not config.token_issuer:
        raise ConfigError(f"{PREFIX}TOKEN_KEYS_FILE needs {PREFIX}TOKEN_ISSUER")
    if bool(config.tls_cert_file) != bool(config.tls_key_file):
        raise ConfigError(f"{PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE: set both or none")
    if config.tls_cert_file and not (config.tls_required or config.hooks_port):
        raise ConfigError(f"{PREFIX}TLS_REQUIRED=false needs {PREFIX}HOOKS_PORT")
    return config
