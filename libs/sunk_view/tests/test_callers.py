"""Which user a request is of, by what the front proxy writes."""

import pytest

from sunk_runtime.errors import ConfigError
from sunk_view.callers import Caller, FrontProxy, UnknownCallerError, front_proxy

DATA = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
HEADERS = [
    ("x-remote-user", "alice"),
    ("x-remote-uid", "7"),
    ("x-remote-group", "team-a"),
    ("x-remote-group", "system:authenticated"),
    ("x-remote-extra-acme.com%2fproject", "one"),
]


def proxy(**changed: str) -> FrontProxy:
    return front_proxy(DATA | {name.replace("_", "-"): value for name, value in changed.items()})


def test_the_front_proxy_names_the_user_with_all_that_the_api_server_knows() -> None:
    assert proxy().caller("front-proxy-client", HEADERS) == Caller(
        user="alice",
        uid="7",
        groups=("team-a", "system:authenticated"),
        extra=(("acme.com/project", ("one",)),),
    )


@pytest.mark.parametrize(
    ("user", "share"),
    [
        ("alice", "user alice"),
        ("namespace team-a", "user namespace team-a"),
        ("system:serviceaccount:team-a:x1", "namespace team-a"),
        ("system:serviceaccount:team-a:x2", "namespace team-a"),
        ("system:serviceaccount:team-b:x1", "namespace team-b"),
        ("system:node:n1", "user system:node:n1"),
    ],
)
def test_the_service_accounts_of_a_namespace_share_what_one_user_has(user: str, share: str) -> None:
    assert Caller(user=user).share == share


@pytest.mark.parametrize("name", ["", "alice", "front-proxy-client2", "FRONT-PROXY-CLIENT"])
def test_headers_on_another_connection_name_no_user(name: str) -> None:
    with pytest.raises(UnknownCallerError):
        proxy().caller(name, HEADERS)


def test_without_allowed_names_every_certificate_of_the_authority_is_the_front_proxys() -> None:
    assert proxy(requestheader_allowed_names="[]").caller("any", HEADERS).user == "alice"


def test_without_a_certificate_no_user_is_named_even_if_every_name_is_allowed() -> None:
    with pytest.raises(UnknownCallerError, match="no client certificate"):
        proxy(requestheader_allowed_names="[]").caller("", HEADERS)


def test_a_request_without_a_user_is_of_no_user() -> None:
    with pytest.raises(UnknownCallerError, match="names no user"):
        proxy().caller("front-proxy-client", [("x-remote-group", "system:masters")])


@pytest.mark.parametrize("key", ["requestheader_client_ca_file", "requestheader_username_headers"])
def test_an_api_server_without_aggregation_is_an_error_that_says_what_to_do(key: str) -> None:
    with pytest.raises(ConfigError, match="--requestheader-client-ca-file"):
        proxy(**{key: ""})


def test_entries_that_cannot_be_read_are_an_error() -> None:
    with pytest.raises(ConfigError, match="requestheader-allowed-names"):
        proxy(requestheader_allowed_names="front-proxy-client")
