"""Tokens for slurmrestd: signed by us from slurmctld's key, or read from a file that others renew.

A token stands in a request's header and nowhere else: never in a log, a message or a ``repr``.

Source: slurm.schedmd.com/jwt.html; RFC 7519 (JWT), RFC 7515 (HS256).
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Protocol

import jwt
import msgspec
from jwt.algorithms import HMACAlgorithm
from jwt.utils import force_bytes
from msgspec import Meta

from sunk_runtime.errors import ConfigError
from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError

RENEW_SHARE: Final = 0.5
"""A token is renewed when this share of its life is over: slurmrestd may be slow and clocks differ."""


class Tokens(Protocol):
    """Knows the token to send now."""

    def current(self) -> str:
        """Return a token that is valid now."""
        ...

    def renew(self) -> None:
        """Forget what is remembered: slurmrestd did not accept it."""
        ...


class UserTokens(Protocol):
    """Knows tokens of Slurm users, by their numbers, which Slurm takes for their names."""

    def of(self, user_id: int) -> Tokens:
        """Return the tokens of one of them.

        Raises:
            SlurmRejectedError: there are none of that user.
            SlurmUnavailableError: nobody can say now.
        """
        ...


class KeyTokens:
    """Signs tokens with the key of slurmctld's ``jwt_key``. The holder of that key is Slurm's root."""

    def __init__(
        self,
        key_file: Path,
        *,
        user: str = "root",
        lifetime_s: int = 1800,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._key_file = key_file
        self._user = user
        self._lifetime_s = lifetime_s
        self._now = now
        self._token = ""
        self._signed_at = 0.0

    def __repr__(self) -> str:
        return f"KeyTokens({str(self._key_file)!r}, user={self._user!r})"

    def current(self) -> str:
        """Return the remembered token, or sign a new one when half its life is over.

        Raises:
            SlurmUnavailableError: the key file cannot be read or is empty; it may be mounted in a moment.
        """
        now = self._now()
        age_s = now - self._signed_at
        if not self._token or not 0 <= age_s < self._lifetime_s * RENEW_SHARE:  # Clocks jump, also back.
            key = _read(self._key_file)
            if not key:
                raise SlurmUnavailableError(f"{self._key_file} holds no key", is_sent=False)
            self._token = _sign(key, self._user, int(now), self._lifetime_s)
            self._signed_at = now
        return self._token

    def renew(self) -> None:
        """Sign a new one at the next call: the key may have changed, or the clock."""
        self._token = ""


class FileTokens:
    """Reads the token from a file, again whenever the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._seen: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"FileTokens({str(self._path)!r})"

    def current(self) -> str:
        """Return what the file holds, with or without ``SLURM_JWT=`` before it.

        Raises:
            SlurmUnavailableError: the file cannot be read or is empty; it may be in a moment.
        """
        seen = _fingerprint(self._path)
        if seen != self._seen or not self._token:
            token = _read(self._path).decode("ascii", "replace").strip().removeprefix("SLURM_JWT=")
            if not _may_be_sent(token):
                raise SlurmUnavailableError(f"{self._path} holds no token", is_sent=False)
            self._token, self._seen = token, seen
        return self._token

    def renew(self) -> None:
        """Read the file again at the next call."""
        self._seen = None


class KeyUserTokens:
    """Signs tokens for any user."""

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file
        self._known: dict[int, KeyTokens] = {}

    def of(self, user_id: int) -> Tokens:
        """Return the tokens of that user."""
        return self._known.setdefault(user_id, KeyTokens(self._key_file, user=str(user_id)))


class FileUserTokens:
    """Reads a JSON object of tokens, by users' numbers, again whenever its file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token_by_user: Mapping[int, str] = {}
        self._seen: tuple[int, int, int] | None = None

    def of(self, user_id: int) -> Tokens:
        """Return the token of that user, for one call."""
        seen = _fingerprint(self._path)
        if seen != self._seen:
            try:
                self._token_by_user = msgspec.json.decode(_read(self._path), type=dict[int, str])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise SlurmUnavailableError(f"{self._path} holds no table", is_sent=False) from error
            self._seen = seen
        token = self._token_by_user.get(user_id, "")
        if not _may_be_sent(token):
            raise SlurmRejectedError(f"{self._path} holds no token of the Slurm user {user_id}")
        return _FixedToken(token)


class _FixedToken:
    """One token as it is."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __repr__(self) -> str:
        return "_FixedToken()"

    def current(self) -> str:
        return self._token

    def renew(self) -> None:
        """Return: the next call reads the file."""


def tokens_from(*, key_file: Path | None, token_file: Path | None, user: str = "root") -> Tokens:
    """Return where tokens come from; exactly one of the two files is given.

    Raises:
        ConfigError: both or neither are given.
    """
    if token_file is not None and key_file is None:
        return FileTokens(token_file)
    if key_file is not None and token_file is None:
        return KeyTokens(key_file, user=user)
    raise ConfigError("set a file with Slurm's token or one with its JWT key, and not both")


def _may_be_sent(token: str) -> bool:
    return token != "" and token.isascii() and token.isprintable() and " " not in token


def _fingerprint(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise SlurmUnavailableError(f"read {path}: {error.strerror}", is_sent=False) from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SlurmUnavailableError(f"read {path}: {error.strerror}", is_sent=False) from error


class _AnyKey(HMACAlgorithm):
    """Signs with whatever ``jwt_key`` holds, also PEM, as Slurm once told to make: PyJWT refuses that."""

    def prepare_key(self, key: str | bytes) -> bytes:
        return force_bytes(key)


class _Claims(msgspec.Struct, frozen=True):
    """What Slurm's own tokens say; it takes none without these."""

    exp: float
    iat: float
    sun: Annotated[str, Meta(min_length=1, max_length=256)]
    """Slurm's claim for the user's name."""
    nbf: float = 0.0


_JWS: Final = jwt.PyJWS()
_JWS.unregister_algorithm("HS256")
_JWS.register_algorithm("HS256", _AnyKey(HMACAlgorithm.SHA256))


def user_of(token: str, key: bytes, now_s: float) -> str:
    """Return the user whose *token* was signed with *key*, slurmctld's ``jwt_key``, and counts at *now_s*.

    An empty *key* would sign for any program: the caller has to have one.

    Raises:
        ValueError: it does not. The text has nothing of the token.
    """
    try:
        claims = msgspec.json.decode(_JWS.decode(token, key, algorithms=["HS256"]), type=_Claims)
    except (jwt.PyJWTError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError("this Slurm cluster did not issue the token") from error
    if not claims.nbf <= now_s < claims.exp:
        raise ValueError("the token has expired, or is not valid yet")
    return claims.sun


def _sign(key: bytes, user: str, issued: int, lifetime_s: int) -> str:
    """Return a JWT."""
    claims = {"iat": issued, "exp": issued + lifetime_s, "sun": user}
    return _JWS.encode(msgspec.json.encode(claims), key, "HS256")
