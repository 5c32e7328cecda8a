"""Keeps the two Secrets as they should be.

The authorities are written first. Whoever is killed between the two writes finds them at the next look, and
another one that writes at the same time is refused by the resourceVersion.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import datetime

import msgspec

from sunk_kube.client import KubeClient
from sunk_kube.objects import Secret
from sunk_kube.resources import SECRETS
from sunk_nodeset_controller.certificates.decision import (
    AuthorityError,
    Data,
    wanted_authorities,
    wanted_server,
)

log = logging.getLogger(__name__)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the two are. The chart has made both, empty, so that we need no right to create any."""

    namespace: str
    authority_secret: str
    server_secret: str


async def keep(client: KubeClient, place: Place, names: Sequence[str], now: datetime) -> None:
    """Make and renew what is to be.

    Raises:
        KubeNotFoundError: the chart has not made the Secrets.
        ConflictError: Another one has written at this moment: look again.
        AuthorityError: The Secret of the authorities holds what cannot be read.
    """
    authority = await client.get(SECRETS, place.authority_secret, place.namespace)
    server = await client.get(SECRETS, place.server_secret, place.namespace)
    try:
        authorities = wanted_authorities(_data(authority), now)
    except AuthorityError as error:
        raise AuthorityError(f"Secret {authority.key}: {error}") from error
    wanted = wanted_server(authorities, _data(server), names, now)
    await _write(client, authority, authorities)
    await _write(client, server, wanted)


async def _write(client: KubeClient, secret: Secret, wanted: Data) -> None:
    """Write what differs."""
    found = _data(secret)
    changed = {name: b64encode(data).decode() for name, data in wanted.items() if found.get(name) != data}
    body = {
        "metadata": {"resourceVersion": secret.metadata.resource_version},
        "data": {**changed, **{name: None for name in found if name not in wanted}},
    }
    if body["data"]:
        meta = secret.metadata
        await client.patch(SECRETS, meta.name, body, meta.namespace)
        log.info("written", extra={"secret": secret.key, "keys": sorted(body["data"])})


def _data(secret: Secret) -> Data:
    """Return what is in it; text that is no base64, which the API server lets nobody write, is nothing."""
    return {name: b64decode(text) for name, text in secret.data.items()}
