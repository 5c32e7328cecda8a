"""Issuer and keys, kept current: read at start, now and then, and when a token names an unknown key.

What must stay true: a token is refused for its unknown key only after a read that began after the token
came; however many such tokens come, keys are looked up for them at most once in `LOOKUP_S`, and all others
are told to ask again at once.
"""

import hashlib
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
import msgspec

from sunk_hook_gateway.access.tokens import (
    Caller,
    Claims,
    Trust,
    admit_static,
    caller_of,
    key_id,
    parse_keys,
    static_tokens,
    verified,
)
from sunk_hook_gateway.adapters.ports import FetchTrust
from sunk_hook_gateway.metrics import TRUST_READS
from sunk_runtime.errors import ConfigError, SunkError, TransientError

log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""After a read that failed."""
LOOKUP_S: Final = 30.0
REFRESH_S: Final = 300.0
WAIT_S: Final = 5.0
READ_TIMEOUT_S: Final = 4.0
REMEMBERED: Final = 20_000
"""So many tokens; each time that the keys are read all are verified anew."""


class RawReader(Protocol):
    """Reads a document of the API server."""

    async def get_raw(self, path: str) -> bytes:
        """Return what is at *path*."""
        ...


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str


def from_api_server(kube: RawReader, issuer: str) -> FetchTrust:
    """Return a reader of the keys that the API server publishes; an empty *issuer* is its own."""

    async def fetch() -> Trust:
        keys = await kube.get_raw("/openid/v1/jwks")
        named = issuer
        try:
            if not named:
                document = await kube.get_raw("/.well-known/openid-configuration")
                named = msgspec.json.decode(document, type=_Discovery).issuer
            return Trust(named, parse_keys(keys))
        except (msgspec.DecodeError, ValueError) as error:
            raise TransientError(f"keys of the API server: {error}") from error

    return fetch


def from_file(path: Path, issuer: str) -> FetchTrust:
    """Return a reader of a mounted JWKS file."""

    async def fetch() -> Trust:
        try:
            return Trust(issuer, parse_keys(await anyio.Path(path).read_bytes()))
        except (OSError, ValueError) as error:
            raise TransientError(f"keys in {path}: {error}") from error

    return fetch


class PodTokens:
    """Tells which Pod a projected ServiceAccount token is bound to."""

    def __init__(self, fetch: FetchTrust, *, audience: str) -> None:
        self._fetch = fetch
        self._audience = audience
        self._trust: Trust | None = None
        self._verified: dict[bytes, Claims] = {}
        """What tokens say that these keys have verified, by their digests: a prolog shows its token again."""
        self._begun = 0
        self._done = 0
        """The read that ended last and succeeded; reads are counted from 1."""
        self._wanted = anyio.Event()
        self._next_lookup = 0.0
        """When keys may be read for an unknown one again, in the event loop's time."""
        self._read = anyio.Event()

    @property
    def is_ready(self) -> bool:
        """The keys were read once."""
        return self._trust is not None

    def identify_at_once(self, token: str) -> Caller | None:
        """Return the Pod that *token* is bound to; None if keys are to be read first."""
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._verified.get(digest)
        if claims is not None:
            return caller_of(claims, datetime.now(UTC))
        kid = key_id(token)
        if self._trust is None:
            return None
        if kid not in self._trust.keys:
            if not self._wanted.is_set() and anyio.current_time() < self._next_lookup:
                raise TransientError("token is signed with a key that is not known yet")
            return None
        return self._verify(token, digest, self._trust)

    async def identify(self, token: str) -> Caller:
        """Return the Pod that *token* is bound to, after reading the keys anew if its key is unknown."""
        found = self.identify_at_once(token)
        if found is not None:
            return found
        trust = await self._trust_for(key_id(token))
        return self._verify(token, hashlib.sha256(token.encode()).digest(), trust)

    async def run(self) -> None:
        """Read the keys at start, each `REFRESH_S`, and when a token asks for it."""
        while True:
            self._wanted = anyio.Event()
            self._begun += 1
            if not await self._read_once():
                await anyio.sleep(PAUSE_S)
                continue
            with anyio.move_on_after(REFRESH_S):
                await self._wanted.wait()
                self._next_lookup = anyio.current_time() + LOOKUP_S

    def _verify(self, token: str, digest: bytes, trust: Trust) -> Caller:
        claims = verified(token, trust, audience=self._audience)
        if trust is self._trust and len(self._verified) < REMEMBERED:
            self._verified[digest] = claims
        return caller_of(claims, datetime.now(UTC))

    async def _read_once(self) -> bool:
        try:
            with anyio.fail_after(READ_TIMEOUT_S):
                self._trust, self._verified = await self._fetch(), {}
        except (SunkError, TimeoutError) as error:  # The keys that we have stay good.
            TRUST_READS.labels("failed").inc()
            log.warning("keys not read", extra={"error": str(error) or type(error).__name__})
            return False
        TRUST_READS.labels("read").inc()
        self._done = self._begun
        self._read.set()
        self._read = anyio.Event()
        return True

    async def _trust_for(self, kid: str) -> Trust:
        needed = self._begun + 1
        with anyio.move_on_after(WAIT_S):
            while self._trust is None or (kid not in self._trust.keys and self._done < needed):
                self._wanted.set()
                await self._read.wait()
            return self._trust
        raise TransientError("the keys that tokens are signed with cannot be read now")


class StaticToken:
    """Lets the holder of a token speak for every node, where there is no Kubernetes; two while it rotates."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_ready(self) -> bool:
        """Always: the file is read at each call, for it may rotate."""
        return True

    def identify_at_once(self, token: str) -> Caller:
        """Return the holder of the static token; the file is small, and read without a thread's help."""
        try:
            expected = static_tokens(self._path.read_text())
        except OSError as error:
            raise TransientError(f"cannot read {self._path}: {error.strerror}") from error
        return admit_static(token, expected)

    async def identify(self, token: str) -> Caller:
        """Return the holder of the static token."""
        return self.identify_at_once(token)

    async def run(self) -> None:
        """Check the file once, so that a wrong path ends the process at start."""
        if not await anyio.Path(self._path).is_file():
            raise ConfigError(f"static token file {self._path} does not exist")
        await anyio.sleep_forever()
