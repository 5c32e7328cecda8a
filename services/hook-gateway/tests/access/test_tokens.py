import hashlib
import time
from datetime import UTC, datetime

import jwt
import pytest

from sunk_hook_gateway.access.tokens import (
    AccessError,
    Caller,
    Trust,
    admit,
    admit_job,
    admit_static,
    bearer,
    identify,
    is_present,
    is_slurmctld,
    parse_keys,
    static_tokens,
)
from sunk_hook_gateway.testing.issuer import AUDIENCE, ISSUER, Issuer

ISSUED_BY = Issuer()
STRANGER = Issuer()
TRUST = Trust(ISSUER, parse_keys(ISSUED_BY.jwks()))
NOW = int(time.time())


def asked(token: str) -> Caller:
    return identify(token, TRUST, audience=AUDIENCE, now=datetime.now(UTC))


def unsigned() -> str:
    payload = jwt.decode(ISSUED_BY.token(), options={"verify_signature": False})
    return jwt.encode(payload, "", algorithm="none", headers={"kid": "k1"})


def signed_with_the_published_key() -> str:
    payload = jwt.decode(ISSUED_BY.token(), options={"verify_signature": False})
    secret = ISSUED_BY.jwk()["n"]
    return jwt.encode(payload, secret, algorithm="HS256", headers={"kid": "k1"})


def test_a_pods_token_tells_the_pod() -> None:
    assert asked(ISSUED_BY.token("gpu-1", "slurm", uid="u1")) == Caller("gpu-1", "slurm", "u1", "slurmd")


@pytest.mark.parametrize(
    ("token", "status"),
    [
        pytest.param("garbage", 401, id="no token at all"),
        pytest.param("a.b.c", 401, id="three parts of nothing"),
        pytest.param(STRANGER.token(), 401, id="signed by a stranger under our key id"),
        pytest.param(Issuer("k2").token(), 401, id="unknown key id"),
        pytest.param(unsigned(), 401, id="unsigned"),
        pytest.param(signed_with_the_published_key(), 401, id="HMAC with the public key"),
        pytest.param(ISSUED_BY.token(exp=NOW - 60), 401, id="expired"),
        pytest.param(ISSUED_BY.token(exp=None), 401, id="never expires"),
        pytest.param(ISSUED_BY.token(nbf=NOW + 6000), 401, id="not yet valid"),
        pytest.param(ISSUED_BY.token(aud=["https://kubernetes.default.svc"]), 401, id="for the API server"),
        pytest.param(ISSUED_BY.token(aud=None), 401, id="for nobody"),
        pytest.param(ISSUED_BY.token(iss="https://elsewhere"), 401, id="another issuer"),
        pytest.param(ISSUED_BY.token(pod=""), 403, id="bound to no Pod"),
        pytest.param(ISSUED_BY.token(uid=""), 403, id="bound to a Pod's name only"),
        pytest.param(ISSUED_BY.token(bound=None), 403, id="no ServiceAccount's"),
        pytest.param(ISSUED_BY.token(bound="x"), 401, id="claims of another shape"),
    ],
)
def test_no_other_token_is_let_in(token: str, status: int) -> None:
    with pytest.raises(AccessError) as refused:
        asked(token)

    assert refused.value.status == status
    assert token not in str(refused.value)


def test_a_clock_that_is_seconds_off_does_not_lock_a_node_out() -> None:
    now = int(time.time())

    assert asked(ISSUED_BY.token(exp=now - 5, nbf=now + 5)).pod
    assert asked(ISSUED_BY.token(iat=now + 5, nbf=now + 5)).pod


@pytest.mark.parametrize(
    "caller",
    [
        pytest.param(Caller("gpu-2", "slurm"), id="another Pod"),
        pytest.param(Caller("gpu-1", "default"), id="a Pod of that name elsewhere"),
    ],
)
def test_a_pod_speaks_for_its_own_node_only(caller: Caller) -> None:
    admit(Caller("gpu-1", "slurm"), "gpu-1", "slurm")

    with pytest.raises(AccessError) as refused:
        admit(caller, "gpu-1", "slurm")
    assert refused.value.status == 403


def test_a_pod_that_had_the_name_before_is_not_the_one_that_has_it_now() -> None:
    caller = Caller("gpu-1", "slurm", "new")

    assert is_present(caller, "new")
    assert is_present(caller, "")  # An older nodeset-controller says none.
    assert not is_present(caller, "old")
    assert not is_present(caller, None)
    assert is_present(Caller(), None)


@pytest.mark.parametrize(
    ("caller", "accounts", "is_it"),
    [
        pytest.param(Caller("ctld-0", "slurm", "u", "ctld"), {"ctld"}, True, id="slurmctld"),
        pytest.param(Caller("ctld-0", "slurm", "u", "slurmd"), {"ctld"}, False, id="its Pod's name alone"),
        pytest.param(Caller("ctld-0", "default", "u", "ctld"), {"ctld"}, False, id="its account elsewhere"),
        pytest.param(Caller("gpu-1", "slurm", "u"), {""}, False, id="a Pod without an account"),
        pytest.param(Caller(), {"ctld", ""}, False, id="the static token"),
        pytest.param(Caller("ctld-0", "slurm", "u", "ctld"), frozenset[str](), False, id="no accounts"),
    ],
)
def test_slurmctld_is_known_by_an_account_that_only_its_pod_has(
    caller: Caller, accounts: set[str], *, is_it: bool
) -> None:
    assert is_slurmctld(caller, "slurm", accounts) is is_it


def test_the_static_token_speaks_for_every_node_and_an_empty_file_for_none() -> None:
    admit(admit_static("s3cret", ["s3cret"]), "gpu-1", "slurm")

    with pytest.raises(AccessError):
        admit_static("other", ["s3cret"])
    for empty in ("", " \n\n"):
        with pytest.raises(AccessError):
            admit_static("", static_tokens(empty))


def test_of_a_file_of_static_tokens_the_first_two_count() -> None:
    assert static_tokens("new\n") == ("new",)
    assert static_tokens("new\n\n old \nolder\n") == ("new", "old")


def test_a_job_hook_needs_the_token_of_that_placeholder() -> None:
    admit_job("t1", hashlib.sha256(b"t1").hexdigest())

    for digest in (hashlib.sha256(b"t2").hexdigest(), ""):
        with pytest.raises(AccessError) as refused:
            admit_job("t1", digest)
        assert refused.value.status == 403


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer  ", "Basic dTpw", "s3cret"])
def test_a_call_without_a_bearer_token_is_told_so(header: str | None) -> None:
    with pytest.raises(AccessError) as refused:
        bearer(header)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AA","kid":"k1"}]}']
)
def test_a_document_without_a_usable_key_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|JWKS"):
        parse_keys(document)
