# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
"""A user whom a credentials file of NATS lets in: operator, account and user, as `nsc` makes them."""

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import nkeys
import pytest

from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import BusSettings, connect

pytestmark = pytest.mark.anyio

_ALL: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1}


def _key(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _token(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, name: str, claims: dict[str, Any]) -> str:
    """Return a JWT of NATS, version 2."""
    body: dict[str, Any] = {
        "iat": 1,
        "iss": issuer.public_key.decode(),
        "sub": subject.public_key.decode(),
        "name": name,
        "nats": {**claims, "version": 2},
    }
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    signed = ".".join(_base64(json.dumps(part).encode()) for part in (head, body))
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _credentials(token: str, user: nkeys.KeyPair) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )


async def test_a_credentials_file_lets_its_user_in(tmp_path: Path) -> None:
    operator, user = _key(nkeys.PREFIX_BYTE_OPERATOR), _key(nkeys.PREFIX_BYTE_USER)
    system, account = (_key(nkeys.PREFIX_BYTE_ACCOUNT) for _ in "ab")
    limits = {**_ALL, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    operator_token = _token(operator, operator, "o", {"type": "operator"})
    system_token = _token(operator, system, "sys", {"type": "account", "limits": limits})
    account_token = _token(operator, account, "a", {"type": "account", "limits": {**limits, **storage}})
    user_token = _token(account, user, "u", {"type": "user", **_ALL})
    file = tmp_path / "user.creds"
    file.write_text(_credentials(user_token, user))
    extra = (
        f"operator: {operator_token}\nresolver: MEMORY\nsystem_account: {system.public_key.decode()}\n"
        f"resolver_preload: {{ {system.public_key.decode()}: {system_token}, "
        f"{account.public_key.decode()}: {account_token} }}"
    )

    with NatsServer(tmp_path / "nats", extra=extra) as server:
        settings = BusSettings(url=server.url, credentials_file=file)
        async with connect(settings, "test") as bus:
            await bus.provision("c1", settings)
            is_in = bus.is_connected

    assert is_in
