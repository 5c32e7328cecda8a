"""What leaves the cluster in a support bundle, and what does not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_ctl.redaction import LINE_CHARS, REDACTED, redacted, redacted_object

SECRET = "Hunter2"  # noqa: S105 - made up
LONG = "q7Zk2Vw9" * 6
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJyb290In0.s1gnature_-x"
KEY = f"-----BEGIN EC PRIVATE KEY-----\n{LONG}\n-----END EC PRIVATE KEY-----"
STAMP = "2026-01-01T00:00:00.123456789Z "
HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [
        f"StoragePass={SECRET}",
        f"StoragePass = {SECRET} with spaces",
        f"password: {SECRET}",
        f"PASSWORD='{SECRET}'",
        f'password = "{SECRET}\\"{SECRET}"',
        f"password:\n  {SECRET}",
        f"password: |\n  {SECRET}\n\n  {SECRET}",
        f"passwords:\n  - {SECRET}\n  - {SECRET}",
        f'"passwords": [\n  "{SECRET}",\n  "{SECRET}"\n]',
        f'"secret": {{"password":\n  "{SECRET}"\n}}',
        f"{STAMP}password: |\n{STAMP}  {SECRET}\n{STAMP}\n{STAMP}  {SECRET}",
        f'{STAMP}{{"message": "{{\\"token\\": \\"{SECRET}\\"}}", "level": "info"}}',
        f"mysql --password=\\\n  {SECRET}",
        f"ldap_default_authtok = {SECRET}",
        f"X-SLURM-USER-TOKEN: {SECRET}",
        f"Authorization: Negotiate {SECRET}",
        f"sent Bearer {SECRET}{SECRET} to it",
        f"mysql --password {SECRET} -u slurm",
        f"mysql --password={SECRET} -u slurm",
        f"nats://syncer:{SECRET}@nats:4222",
        f"nats://{SECRET}@nats:4222",
        f'{{"message": "cannot log in", "password": "{SECRET}"}}',
        f'{{"message": "sent password={SECRET}", "level": "info"}}',
        f'{{"a": [{{"tokens": ["{SECRET}", "{SECRET}"]}}]}}',
        f'{{"message": "{{\\"api_key\\": \\"{SECRET}\\"}}"}}',
        f'2026-01-01T00:00:00Z {{"api_key": "{SECRET}"}}',
        f'2026-01-01T00:00:00Z {{\\"api_key\\": \\"{SECRET}\\"}}',
    ],
)
def test_a_value_whose_name_says_that_it_is_secret_goes(text: str) -> None:
    assert SECRET not in redacted(text)
    assert REDACTED in redacted(text)


@pytest.mark.parametrize(
    "secret", [JWT, LONG, HEX, KEY, KEY[:60], "p" + LONG[:43], LONG[:20] + "+/" + LONG + "=="]
)
def test_what_looks_like_a_key_or_a_token_goes_wherever_it_stands(secret: str) -> None:
    found = redacted(f"decoding {secret} failed")

    assert REDACTED in found
    assert secret.splitlines()[-1] not in found
    assert LONG not in found


@pytest.mark.parametrize(
    "text",
    [
        '{"level":"info","message":"slurm api chosen","version":"v0.0.42"}',
        "slurmrestd does not accept the token; check the key or the token file, and the clocks",
        "image sunk/syncer@sha256:" + HEX,
        "uid 6f1d7c1e-8a52-4c11-9d33-2b8a3c8f0a11",
        "pod sunk-pod-scheduler-7d9f8b6c5d-x2x4z is not ready",
        "/usr/lib/python3/dist-packages/Some1/Long2/Path3/Of4/Files5/x",
        "AuthAltParameters=jwt_key=/var/spool/slurm/jwt.key",
        "SUNK_SYNCER_TOKEN_FILE=/run/secrets/token",
        "http://nats:8222/healthz",
        "SLURM_TRACE 0af7651916cd43dd8448eb211c80319c",
    ],
)
def test_what_a_reader_needs_stays(text: str) -> None:
    assert redacted(text) == text


def test_the_lines_after_a_secret_of_several_lines_stay() -> None:
    assert redacted(f"a: 1\npassword: |\n  {SECRET}\nb: 2") == f"a: 1\npassword: |\n  {REDACTED}\nb: 2"


def test_an_object_loses_values_and_keeps_names() -> None:
    pod = {
        "env": [
            {"name": "NATS_PASSWORD", "value": SECRET},
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "X_TOKEN", "valueFrom": {"secretKeyRef": {"name": "nats", "key": "syncer"}}},
        ],
        "args": [f"--url=nats://a:{SECRET}@b", "--password", SECRET, "--token-file", "/run/token"],
        "automountServiceAccountToken": False,
        "volumes": [{"name": "keys", "secret": {"secretName": "slurm-keys"}}],
    }

    found = redacted_object(pod)

    assert SECRET not in json.dumps(found)
    assert found == {
        "env": [
            {"name": "NATS_PASSWORD", "value": REDACTED},
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "X_TOKEN", "valueFrom": {"secretKeyRef": {"name": "nats", "key": "syncer"}}},
        ],
        "args": [f"--url=nats://{REDACTED}b", "--password", REDACTED, "--token-file", "/run/token"],
        "automountServiceAccountToken": False,
        "volumes": [{"name": "keys", "secret": {"secretName": "slurm-keys"}}],
    }


def test_json_that_is_nested_without_end_goes() -> None:
    text = "[" * 5000 + f'{{"password": "{SECRET}"}}' + "]" * 5000

    assert SECRET not in redacted(text)


PARTS = st.sampled_from(
    [*"abZ9 \n:=\"'{}[]|>-/@\\", "password", "token: ", "://", "  ", LONG, "Bearer ", "---BEGIN"]
)


@given(st.lists(PARTS, max_size=40).map("".join))
def test_what_was_redacted_does_not_change_again(text: str) -> None:
    once = redacted(text)

    assert redacted(once) == once


@pytest.mark.parametrize(
    "part",
    ["a", "pass", "--", "password=", "://a", "Bearer ", "eyJaaaaa.", "-----BEGIN A", '{"a":', "= ", "Aa1/"],
)
def test_a_long_hostile_line_is_no_work_without_bound(part: str) -> None:
    assert len(redacted(part * (4_000_000 // len(part)))) < 2 * LINE_CHARS
