"""Whose a token of Slurm is: only what slurmctld's key signed counts, and only in its time."""

import base64
import json
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_slurm.tokens import KeyTokens, user_of

KEY = b"k" * 64
NOW = 1_000_000.0
SAID = {"iat": int(NOW), "exp": int(NOW) + 60, "sun": "ada"}


def signed(claims: object, key: bytes = KEY, algorithm: str = "HS256") -> str:
    return jwt.PyJWS().encode(json.dumps(claims).encode(), key, algorithm)


def test_a_token_that_this_project_signs_is_its_users(tmp_path: Any) -> None:  # noqa: ANN401 - any path
    file = tmp_path / "jwt.key"
    for key in (KEY, b"-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----\n"):
        file.write_bytes(key)
        token = KeyTokens(file, user="ada", lifetime_s=60, now=lambda: NOW).current()

        assert user_of(token, key, NOW) == "ada"


def unsigned(claims: object) -> str:
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"alg": "none", "typ": "JWT"}, claims)
    )
    return f"{head}.{body}."


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(signed(SAID, b"o" * 64), id="another key"),
        pytest.param(signed(SAID, b"o" * 64, "HS512"), id="another algorithm"),
        pytest.param(signed(SAID, KEY, "HS512"), id="another algorithm with our key"),
        pytest.param(unsigned(SAID), id="no signature"),
        pytest.param(signed(SAID)[:-4] + "AAAA", id="a changed signature"),
        pytest.param(signed(SAID | {"exp": NOW}), id="expired"),
        pytest.param(signed(SAID | {"nbf": NOW + 1}), id="not yet"),
        pytest.param(signed({"iat": NOW, "sun": "ada"}), id="for ever"),
        pytest.param(signed({"exp": NOW + 60, "sun": "ada"}), id="of no time"),
        pytest.param(signed({"iat": NOW, "exp": NOW + 60}), id="of no user"),
        pytest.param(signed(SAID | {"sun": ""}), id="of a user without a name"),
        pytest.param(signed(SAID | {"sun": 0}), id="of a number"),
        pytest.param(signed(SAID | {"exp": "9999999999"}), id="a time in text"),
        pytest.param(signed([SAID]), id="a list"),
        pytest.param(signed(SAID).replace(".", "", 1), id="two parts"),
        pytest.param("", id="nothing"),
        pytest.param("é.ü.ß", id="other letters"),
    ],
)
def test_another_token_is_nobodys(token: str) -> None:
    with pytest.raises(ValueError, match="token") as refused:
        user_of(token, KEY, NOW)

    assert "ada" not in str(refused.value)


@given(st.integers(0, 10_000), st.characters(codec="ascii"))
def test_a_token_with_another_letter_is_nobodys_or_says_the_same(where: int, letter: str) -> None:
    token = signed(SAID)
    where %= len(token)
    changed = token[:where] + letter + token[where + 1 :]

    try:
        found = user_of(changed, KEY, NOW)
    except ValueError:
        return
    assert found == "ada"  # The last letter of a part has bits that mean nothing.
