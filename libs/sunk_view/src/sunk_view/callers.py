"""Which user a request is of: what the API server's front proxy writes, and only where it wrote it. Pure.

What must stay true: a header names a user only if the connection was made with a client certificate that the
API server's requestheader authority signed, for a name that it allows. The TLS server checks the signature;
here the name is checked. Without both a request is of no user.

Source: Kubernetes, "Configure the aggregation layer", and its ConfigMap extension-apiserver-authentication.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import msgspec

from sunk_runtime.errors import ConfigError, SunkError

_ACCOUNT: Final = "system:serviceaccount:"
"""Begins the name of a ServiceAccount: its namespace and name follow."""


class UnknownCallerError(SunkError):
    """The request is of no user that the API server vouches for."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A user of Kubernetes, as the API server knows it."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def share(self) -> str:
        """With which others this caller shares a rate and places: ``user alice``, ``namespace team-a``.

        The ServiceAccounts of a namespace share theirs: a tenant makes as many of them as wanted.
        """
        if self.user.startswith(_ACCOUNT):
            return f"namespace {self.user.removeprefix(_ACCOUNT).partition(':')[0]}"
        return f"user {self.user}"


class FrontProxy(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server's front proxy is known, and what it writes."""

    authority: str
    """PEM."""
    names: tuple[str, ...] = ()
    """Common names that are allowed; empty: every one that the authority signed."""
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def caller(self, common_name: str, headers: Sequence[tuple[str, str]]) -> Caller:
        """Return the user whom *headers* name, on a connection of *common_name*.

        Args:
            common_name: Of the client certificate that the TLS server verified; empty: there is none.
            headers: Names in lower case, with values, in order.

        Raises:
            UnknownCallerError: the connection is not the front proxy's, or names no user.
        """
        if not common_name:
            raise UnknownCallerError("no client certificate: only the Kubernetes API server may call")
        if self.names and common_name not in self.names:
            raise UnknownCallerError(f"{common_name!r} is not the Kubernetes API server's front proxy")
        user = next(iter(_values(headers, self.user_headers)), "")
        if not user:
            raise UnknownCallerError("the front proxy names no user")
        extra: dict[str, list[str]] = {}
        for name, value in headers:
            for prefix in self.extra_prefixes:
                if name.startswith(prefix) and len(name) > len(prefix):
                    extra.setdefault(unquote(name[len(prefix) :]), []).append(value)
        return Caller(
            user=user,
            uid=next(iter(_values(headers, self.uid_headers)), ""),
            groups=_values(headers, self.group_headers),
            extra=tuple((name, tuple(values)) for name, values in sorted(extra.items())),
        )


def decoded(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Return the headers of a request; Kubernetes writes names of users in UTF-8.

    Raises:
        UnknownCallerError: a value is no UTF-8: whose name it would be is not clear.
    """
    try:
        return [(name.decode("latin-1"), value.decode()) for name, value in raw]
    except UnicodeDecodeError as error:
        raise UnknownCallerError("a header is not UTF-8") from error


def front_proxy(data: Mapping[str, str]) -> FrontProxy:
    """Return what ConfigMap ``extension-apiserver-authentication`` says.

    Raises:
        ConfigError: the API server has no requestheader authority, or its entries cannot be read.
    """
    authority = data.get("requestheader-client-ca-file", "")
    users = _list(data, "requestheader-username-headers")
    if not authority or not users:
        raise ConfigError(
            "ConfigMap kube-system/extension-apiserver-authentication names no requestheader-client-ca-file: "
            "the API server has no aggregation layer. Start it with --requestheader-client-ca-file, "
            "--proxy-client-cert-file and --proxy-client-key-file"
        )
    return FrontProxy(
        authority=authority,
        names=_list(data, "requestheader-allowed-names", is_lower=False),
        user_headers=users,
        uid_headers=_list(data, "requestheader-uid-headers"),
        group_headers=_list(data, "requestheader-group-headers"),
        extra_prefixes=_list(data, "requestheader-extra-headers-prefix"),
    )


def _list(data: Mapping[str, str], key: str, *, is_lower: bool = True) -> tuple[str, ...]:
    try:
        found = msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
    except msgspec.DecodeError as error:
        raise ConfigError(f"extension-apiserver-authentication, {key}: {error}") from error
    return tuple(name.lower() if is_lower else name for name in found)


def _values(headers: Sequence[tuple[str, str]], names: Sequence[str]) -> tuple[str, ...]:
    """Return the values of the first of *names* that is there."""
    for wanted in names:
        if found := tuple(value for name, value in headers if name == wanted):
            return found
    return ()
