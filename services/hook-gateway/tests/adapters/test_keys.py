import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import anyio
import pytest

from sunk_hook_gateway.access.tokens import AccessError, Caller, Trust
from sunk_hook_gateway.adapters import keys
from sunk_hook_gateway.adapters.keys import PodTokens, StaticToken, from_api_server, from_file
from sunk_hook_gateway.testing.issuer import AUDIENCE, ISSUER, UID, Issuer
from sunk_runtime.errors import ConfigError, TransientError
from sunk_runtime.testing import WITHIN_S, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def keys_are_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "WAIT_S", WITHIN_S)
    monkeypatch.setattr(keys, "READ_TIMEOUT_S", WITHIN_S)


class Documents:
    """An API server's published documents, which it may fail to give."""

    def __init__(self, *issuers: Issuer) -> None:
        self.by_path = {
            "/openid/v1/jwks": b'{"keys":['
            + b",".join(issuer.jwks()[len(b'{"keys": [') : -2] for issuer in issuers)
            + b"]}",
            "/.well-known/openid-configuration": b'{"issuer":"' + ISSUER.encode() + b'","jwks_uri":"x"}',
        }

    async def get_raw(self, path: str) -> bytes:
        if path not in self.by_path:
            raise TransientError(f"GET {path}: HTTP 503")
        return self.by_path[path]


async def test_issuer_and_keys_are_what_the_api_server_publishes() -> None:
    issuer = Issuer()

    trust = await from_api_server(Documents(issuer), "")()

    assert trust.issuer == ISSUER
    assert list(trust.keys) == ["k1"]


@pytest.mark.parametrize(
    ("path", "document"),
    [
        pytest.param("/openid/v1/jwks", b"<html>", id="keys that are none"),
        pytest.param("/.well-known/openid-configuration", b"{}", id="no issuer"),
    ],
)
async def test_garbage_from_the_api_server_is_tried_again(path: str, document: bytes) -> None:
    documents = Documents(Issuer())
    documents.by_path[path] = document

    with pytest.raises(TransientError):
        await from_api_server(documents, "")()


async def test_a_missing_keys_file_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"jwks\.json"):
        await from_file(tmp_path / "jwks.json", ISSUER)()


async def test_tokens_are_checked_again_once_the_keys_can_be_read() -> None:
    issuer, is_up = Issuer(), anyio.Event()

    async def fetch() -> Trust:
        if not is_up.is_set():
            raise TransientError("the API server is away")
        return await from_api_server(Documents(issuer), "")()

    tokens = PodTokens(fetch, audience=AUDIENCE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.run)
        await anyio.sleep(0.05)
        assert not tokens.is_ready
        is_up.set()
        assert await tokens.identify(issuer.token("gpu-1")) == Caller("gpu-1", "slurm", UID, "slurmd")
        tasks.cancel_scope.cancel()


class InHalfAnHour(datetime):
    """A clock that is ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(minutes=30)


async def test_a_token_that_was_let_in_is_refused_once_it_has_expired_or_its_key_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = Issuer(), Issuer("k2")
    documents = Documents(old)
    tokens = PodTokens(from_api_server(documents, ""), audience=AUDIENCE)
    expiring = old.token("gpu-1", exp=int(time.time()) + 600)
    lasting = old.token("gpu-1")

    async def is_refused(token: str) -> bool:
        try:
            await tokens.identify(token)
        except (AccessError, TransientError):  # Of a key that is gone: until keys may be looked up again.
            return True
        return False

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.run)
        assert [await tokens.identify(token) for token in (expiring, lasting)] == [
            Caller("gpu-1", "slurm", UID, "slurmd")
        ] * 2
        assert not await is_refused(expiring)
        monkeypatch.setattr(keys, "datetime", InHalfAnHour)
        assert await is_refused(expiring)
        assert not await is_refused(lasting)
        documents.by_path |= Documents(new).by_path
        # Has the keys read.
        assert await tokens.identify(new.token("gpu-1")) == Caller("gpu-1", "slurm", UID, "slurmd")
        assert await is_refused(lasting)
        tasks.cancel_scope.cancel()


async def test_a_flood_of_unknown_keys_costs_the_api_server_one_read() -> None:
    issuer, reads = Issuer(), 0

    async def fetch() -> Trust:
        nonlocal reads
        reads += 1
        return await from_api_server(Documents(issuer), "")()

    tokens = PodTokens(fetch, audience=AUDIENCE)
    refused = 0

    async def stranger() -> None:
        nonlocal refused
        with pytest.raises(AccessError):
            await tokens.identify(forged)
        refused += 1

    forged = Issuer("unknown").token()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.run)
        await until(lambda: tokens.is_ready)
        async with anyio.create_task_group() as strangers:
            for _ in range(50):
                strangers.start_soon(stranger)
        tasks.cancel_scope.cancel()

    assert refused == 50
    assert reads == 2


async def test_an_unknown_key_is_looked_up_at_most_once_in_half_a_minute_and_nobody_waits_for_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents, reads = Documents(Issuer("k1")), 0

    async def fetch() -> Trust:
        nonlocal reads
        reads += 1
        return await from_api_server(documents, "")()

    tokens = PodTokens(fetch, audience=AUDIENCE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.run)
        await until(lambda: tokens.is_ready)
        with pytest.raises(AccessError):
            await tokens.identify(Issuer("garbage").token())
        for n in range(20):
            with pytest.raises(TransientError):
                tokens.identify_at_once(Issuer(f"garbage {n}").token())
        assert reads == 2

        documents.by_path |= Documents(new := Issuer("k2")).by_path
        with pytest.raises(TransientError):
            await tokens.identify(new.token("gpu-1"))
        monkeypatch.setattr(tokens, "_next_lookup", 0.0)  # Half a minute later.
        assert await tokens.identify(new.token("gpu-1")) == Caller("gpu-1", "slurm", UID, "slurmd")
        assert reads == 3
        tasks.cancel_scope.cancel()


async def test_a_static_token_may_rotate_and_its_file_must_exist(tmp_path: Path) -> None:
    path = anyio.Path(tmp_path / "token")
    await path.write_text("one\n")
    callers = StaticToken(tmp_path / "token")
    assert await callers.identify("one") == Caller()
    await path.write_text("two\none\n")

    assert await callers.identify("two") == await callers.identify("one") == Caller()

    await path.write_text("two\n")
    assert await callers.identify("two") == Caller()
    with pytest.raises(AccessError):
        await callers.identify("one")
    with pytest.raises(ConfigError):
        await StaticToken(tmp_path / "other").run()
