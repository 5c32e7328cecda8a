"""Who is calling: Pod tokens of node hooks, placeholder tokens of job hooks.

A node hook carries the projected ServiceAccount token of its NodeSet Pod, which is bound to that Pod:
signature, issuer, audience and times are checked here, and that the Pod is the node of the path. A job
hook carries the token of one placeholder, of which the placement state holds the SHA-256.

What must stay true: no text raised here holds any part of a token.

Source: Kubernetes, "Managing Service Accounts", bound tokens; RFC 7519; RFC 7517.
"""

import hashlib
import hmac
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

import jwt
import msgspec

from sunk_runtime.errors import PermanentError

ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"})
"""Asymmetric only: with ``none`` or HMAC a published key would be enough to sign."""
LEEWAY_S: Final = 10.0
"""Clocks of nodes and of this machine differ."""
UNAUTHENTICATED: Final = 401
FORBIDDEN: Final = 403


class AccessError(PermanentError):
    """The caller is not let in; *status* is 401 (who are you?) or 403 (not you)."""

    status: int

    def __init__(self, message: str, *, status: int = UNAUTHENTICATED) -> None:
        super().__init__(message)
        self.status = status


class Trust(msgspec.Struct, frozen=True):
    """The issuer whose signatures count, and its public keys by key id."""

    issuer: str
    keys: Mapping[str, jwt.PyJWK]


class Caller(msgspec.Struct, frozen=True):
    """Who called. An empty *pod* is the static token's holder, who speaks for every node."""

    pod: str = ""
    namespace: str = ""
    uid: str = ""
    """Of the Pod: another one may have had its name before."""
    account: str = ""
    """The Pod's ServiceAccount."""


class _Pod(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Account(msgspec.Struct, frozen=True):
    name: str = ""


class _Bound(msgspec.Struct, frozen=True):
    """The private claims of a bound ServiceAccount token."""

    namespace: str = ""
    pod: _Pod = _Pod()
    serviceaccount: _Account = _Account()


class Claims(msgspec.Struct, frozen=True):
    """What a token says that somebody we trust has signed."""

    exp: float
    nbf: float = 0.0
    bound: _Bound = msgspec.field(default=_Bound(), name="kubernetes.io")


def bearer(header: str | None) -> str:
    """Return the token of an ``Authorization`` header. Raises `AccessError`."""
    scheme, _, token = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise AccessError("header `Authorization: Bearer <token>` is missing")
    return token.strip()


def parse_keys(data: bytes) -> dict[str, jwt.PyJWK]:
    """Return the keys of a JWKS document by key id; those of other uses or kinds are left out.

    Raises:
        ValueError: it is no JWKS document, or none of its keys can be used.
    """
    try:
        listed = msgspec.json.decode(data, type=dict[str, list[dict[str, object]]])["keys"]
    except (msgspec.DecodeError, KeyError) as error:
        raise ValueError(f"not a JWKS document: {error}") from error
    keys: dict[str, jwt.PyJWK] = {}
    for entry in listed:
        try:
            key = jwt.PyJWK.from_dict(entry)
        except jwt.PyJWTError:
            continue
        if key.key_id and key.algorithm_name in ALGORITHMS:
            keys[key.key_id] = key
    if not keys:
        raise ValueError("no usable key: needed are RSA or EC keys with a key id")
    return keys


def key_id(token: str) -> str:
    """Return which key *token* says it is signed with; nothing is verified yet. Raises `AccessError`."""
    try:
        found = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError as error:
        raise AccessError("token is malformed") from error
    if not isinstance(found, str) or not found:
        raise AccessError("token names no key")
    return found


def identify(token: str, trust: Trust, *, audience: str, now: datetime) -> Caller:
    """Return the Pod that *token* is bound to. Raises `AccessError`."""
    return caller_of(verified(token, trust, audience=audience), now)


def verified(token: str, trust: Trust, *, audience: str) -> Claims:
    """Return what *token* says, whatever the time is; it is the same for as long as *trust* is.

    Raises:
        AccessError: nobody that we trust has signed it, or not for *audience*.
    """
    key = trust.keys.get(key_id(token))
    if key is None:
        raise AccessError("token is signed with an unknown key")
    try:
        payload = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=audience,
            issuer=trust.issuer,
            # Times are compared below, with the caller's clock.
            options={
                "require": ["exp", "iss", "aud"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        return msgspec.convert(payload, Claims)
    except (jwt.PyJWTError, msgspec.ValidationError) as error:
        raise AccessError(f"token is not valid: {_named(error)}") from error


def caller_of(claims: Claims, now: datetime) -> Caller:
    """Return the Pod that a token with *claims* is bound to *now*. Raises `AccessError`."""
    moment = now.timestamp()
    if moment > claims.exp + LEEWAY_S:
        raise AccessError("token has expired")
    if moment < claims.nbf - LEEWAY_S:
        raise AccessError("token is not valid yet")
    pod = claims.bound.pod
    if not (pod.name and pod.uid):
        raise AccessError("token is not bound to a Pod", status=FORBIDDEN)
    return Caller(pod.name, claims.bound.namespace, pod.uid, claims.bound.serviceaccount.name)


def admit(caller: Caller, node: str, namespace: str) -> None:
    """Let *caller* speak for *node*, or raise `AccessError`."""
    require_member(caller, namespace)
    if caller.pod and caller.pod != node:
        raise AccessError(f"Pod {caller.pod} may not call for node {node}", status=FORBIDDEN)


def require_member(caller: Caller, namespace: str) -> None:
    """Let in Pods of *namespace* and the holder of the static token, or raise `AccessError`."""
    if caller.pod and caller.namespace != namespace:
        raise AccessError(f"Pods of namespace {caller.namespace} may not call the gateway", status=FORBIDDEN)


def is_slurmctld(caller: Caller, namespace: str, accounts: Collection[str]) -> bool:
    """Whether *caller* is a Pod of *namespace* with one of the *accounts* that are slurmctld's alone."""
    return bool(caller.account) and caller.namespace == namespace and caller.account in accounts


def is_present(caller: Caller, uid: str | None) -> bool:
    """Whether *caller* is the Pod that the bus has under its name, by that one's *uid*; None: it has none.

    A state without a uid was written by an older nodeset-controller: then the name has to do.
    """
    return not caller.pod or uid in {"", caller.uid}


def static_tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a static token file, one a line: the new one and, while it rotates, the old one.

    Of more lines the first two count, so that a rotation that nobody ended leaves no third token behind.
    """
    return tuple(text.split()[:2])


def admit_static(token: str, expected: Collection[str]) -> Caller:
    """Return the holder of a static token. Raises `AccessError`; an empty file lets nobody in."""
    # Each is compared, so that the time tells nothing of which.
    found = [hmac.compare_digest(token.encode(), one.encode()) for one in expected]
    if not any(found):
        raise AccessError("token is not valid")
    return Caller()


def admit_job(token: str, token_sha256: str) -> None:
    """Let in who knows the placeholder's token, or raise `AccessError`."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    if not token_sha256 or not hmac.compare_digest(digest, token_sha256.lower()):
        raise AccessError("the token does not belong to this job", status=FORBIDDEN)


def _named(error: Exception) -> str:
    """Return what is wrong, in words that hold nothing of the token: the error's class tells enough."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
