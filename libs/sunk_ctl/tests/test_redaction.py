"""What leaves the cluster in a support bundle, and what does not."""

import base64
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_ctl.redaction import Redactor
from sunk_ctl.secret_lines import LINE_CHARS
from sunk_ctl.secret_names import is_secret
from sunk_ctl.secret_values import forms
from sunk_ctl.secret_words import REDACTED

SECRET = "Hunter2"  # noqa: S105 - made up
LONG = "q7Zk2Vw9" * 6
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJyb290In0.s1gnature_-x"
KEY = f"-----BEGIN EC PRIVATE KEY-----\n{LONG}\n-----END EC PRIVATE KEY-----"
HEX = "0123456789abcdef" * 4
STAMP = "2026-01-01T00:00:00.123456789Z "
AWAY = "2026-01-01T00:00:00.123456789+02:00 "
redacted: Callable[[str], str] = Redactor().text


@pytest.mark.parametrize(
    "text",
    [
        f"StoragePass={SECRET}",
        f"StoragePass = {SECRET} with spaces",
        f"PASSWORD_SYNCER={SECRET}",
        f"export PGPASSWORD={SECRET}",
        f"password: {SECRET}",
        f"password: pass phrase {SECRET}",
        f"PASSWORD='{SECRET}'",
        f"PASSWORD='{SECRET}\n{SECRET}'\nx: 1",
        f'password = "{SECRET}\\"{SECRET}"',
        f'password: "{SECRET}\n  {SECRET}"',
        f'password = """\n{SECRET}\n"""',
        f"password:\n  {SECRET}",
        f"password: abc\n  {SECRET}",
        f"password: |\n  {SECRET}\n\n  {SECRET}",
        f"password: |2-\n  {SECRET}",
        f"password: | # why\n  {SECRET}",
        f"password: |\r\n  {SECRET}\r\n",
        f"passwords:\n  - {SECRET}\n  - {SECRET}",
        f"passwords:\n- {SECRET}\n- {SECRET}",
        f"tokens:\n- name: a\n  x: {SECRET}",
        f'"passwords": [\n  "{SECRET}",\n  "{SECRET}"\n]',
        f'"secret": {{"password":\n  "{SECRET}"\n}}',
        f"{STAMP}password: |\n{STAMP}  {SECRET}\n{STAMP}\n{STAMP}  {SECRET}",
        f"{AWAY}password: |\n{AWAY}  {SECRET}",
        f'{STAMP}{{"message": "{{\\"token\\": \\"{SECRET}\\"}}", "level": "info"}}',
        f'{AWAY}{{"env":[{{"name":"NATS_PASSWORD","value":"{SECRET}"}}]}}',
        f"env:\n  - name: NATS_PASSWORD\n    value: {SECRET}",
        f'{{\n "name": "NATS_PASSWORD",\n "value": "{SECRET}"\n}}',
        f'got {{"name":"NATS_PASSWORD","value":"{SECRET}"}}',
        f"EnvVar{{Name:NATS_PASSWORD,Value:{SECRET},ValueFrom:nil}}",
        f'{{"env":[{{"name":"NATS_PASSWORD","value":"{SECRET}"}}],"pad":"{"x" * LINE_CHARS}"}}',
        f"mysql --password=\\\n  {SECRET}",
        f"mysql -uroot -p{SECRET}",
        f"curl -u alice:{SECRET} http://a",
        f"ALTER USER 'slurm'@'%' IDENTIFIED BY '{SECRET}'",
        f"<password>{SECRET}</password>",
        f"?token={SECRET}&a=1",
        f"token%3D{SECRET}",
        f"('password', '{SECRET}')",
        f"ldap_default_authtok = {SECRET}",
        f"X-SLURM-USER-TOKEN: {SECRET}",
        f"Authorization: Negotiate {SECRET}",
        f"sent Bearer {SECRET}{SECRET} to it",
        f"mysql --password {SECRET} -u slurm",
        f"mysql --password={SECRET} -u slurm",
        f"nats://syncer:{SECRET}@nats:4222",
        f"nats://syncer:a/{SECRET}@nats:4222",
        f"nats://{SECRET}@nats:4222",
        f"password={SECRET}: wrong",
        f'{{"message": "cannot log in", "password": "{SECRET}"}}',
        f'{{"message": "sent password={SECRET}", "level": "info"}}',
        f'{{"a": [{{"tokens": ["{SECRET}", "{SECRET}"]}}]}}',
        f'{{"password": {{"value": "{SECRET}"}}, "secrets": {{"db": ["{SECRET}"]}}}}',
        f'{{"keys": [{{"kty": "oct", "k": "{SECRET}"}}]}}',
        f'{{"message": "{{\\"api_key\\": \\"{SECRET}\\"}}"}}',
        f'2026-01-01T00:00:00Z {{"api_key": "{SECRET}"}}',
        f'at {{\\"api_key\\": \\"{SECRET}\\"}}',
        f'at {{\\\\\\"api_key\\\\\\": \\\\\\"{SECRET}\\\\\\"}}',
    ],
)
def test_a_value_whose_name_says_that_it_is_secret_goes(text: str) -> None:
    assert SECRET not in redacted(text)
    assert REDACTED in redacted(text)


@pytest.mark.parametrize(
    "secret",
    [
        JWT,
        LONG,
        HEX,
        HEX.upper(),
        KEY,
        KEY[:60],
        "p" + LONG[:43],
        LONG[:20] + "+/" + LONG + "==",
        "SU" + "AIBDPBZ" * 8,
        "$6$rounds$saltsalt$0123456789",
        f"-----BEGIN USER NKEY SEED-----\nSU{LONG}\n------END USER NKEY SEED------",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{LONG}\n-----END PGP PRIVATE KEY BLOCK-----",
    ],
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
        "failed to authorize: failed to fetch anonymous token: unexpected status from GET: 403 Forbidden",
        'MountVolume.SetUp failed: failed to fetch token: serviceaccounts "x" not found',
        "Access denied for user 'slurm'@'10.0.0.1' (using password: YES)",
        "slurmd: error: decode_jwt: Unable to parse the token: expired at 12:00",
        "/var/spool/slurm/slurm.key: Permission denied",
        "image sunk/syncer@sha256:" + HEX,
        "containerID: containerd://" + HEX,
        "uid 6f1d7c1e-8a52-4c11-9d33-2b8a3c8f0a11",
        "pod sunk-pod-scheduler-7d9f8b6c5d-x2x4z is not ready",
        "nvidia.com/gpu.product: NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
        "stream KV_SUNK_cluster1_slurm_reservation",
        "/usr/lib/python3/dist-packages/Some1/Long2/Path3/Of4/Files5/x",
        "SlurmctldHost=slurm-controller-0(slurm-controller)",
        "SchedulerParameters=batch_sched_delay=0,bf_continue,defer",
        "AuthAltParameters=jwt_key=/var/spool/slurm/jwt.key",
        "AuthType=auth/slurm",
        "AuthInfo=ttl=900,cred_expire=900",
        "SUNK_SYNCER_TOKEN_FILE=/run/secrets/token",
        "http://nats:8222/healthz",
        "SLURM_TRACE 0af7651916cd43dd8448eb211c80319c",
    ],
)
def test_what_a_reader_needs_stays(text: str) -> None:
    assert redacted(text) == text


def test_the_lines_after_a_secret_of_several_lines_stay() -> None:
    assert redacted(f"a: 1\npassword: |\n  {SECRET}\nb: 2") == f"a: 1\npassword: |\n  {REDACTED}\nb: 2"


def test_a_secret_of_the_cluster_goes_in_every_form_and_words_stay() -> None:
    values = {
        "username": "slurm",
        "password": "correct horse battery",
        "odd": 'Tr0ub4"dor&3',
        "sssd.conf": f"id_provider = ldap\nldap_default_authtok = {SECRET}-1\n",
        ".dockerconfigjson": json.dumps({"auths": {"r": {"auth": "YWRtaW46SHVudGVyMg=="}}}),
    }
    found = Redactor(forms({name: base64.b64encode(text.encode()).decode() for name, text in values.items()}))
    password = values["password"]

    for secret in (
        password,
        base64.b64encode(password.encode()).decode(),
        password.encode().hex(),
        "correct%20horse%20battery",
        values["odd"],
        'Tr0ub4\\"dor&3',
        f"{SECRET}-1",
        "YWRtaW46SHVudGVyMg==",
    ):
        shown = found.text(f"user slurm says {secret} to ldap")
        assert shown.removesuffix(" to ldap").rstrip("=") == f"user slurm says {REDACTED}"
    assert found.value({password: [password]}) == {REDACTED: [REDACTED]}


@pytest.mark.parametrize(
    "name", ["StoragePass", "PASSWORD_TEAMS", "accessToken", "x-api-key", "AWS_SECRET_ACCESS_KEY"]
)
def test_a_name_is_one_of_a_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["passwd", "TOKEN_FILE", "secretName", "author", "key", "oauth", "tokenExpirationSeconds"]
)
def test_a_name_is_none_of_a_secret(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "PASSWORD=Hunter2-plain\n",
        "a=1\nPASSWORD=Hunter2-plain # why",
        "users = [\n { user: a, password: Hunter2-plain }\n]",
        "password = Hunter2-plain;",
        "a: 1\r\npassword: |\r\n  Hunter2-plain\r\n",
        "mysql://slurm:Hunter2-plain@db/slurm",
        "-----BEGIN\nHunter2-plain\n",
    ],
)
def test_a_secret_in_a_file_that_a_secret_holds_is_known(text: str) -> None:
    found = Redactor(forms({"file": base64.b64encode(text.encode()).decode()}))

    assert found.text("auth failed with Hunter2-plain here") == f"auth failed with {REDACTED} here"


def test_names_that_a_secret_holds_stay() -> None:
    values = {"database": "slurm_acct_db", "host": "slurm-mysql-0.slurm.svc", "tls.crt": "not secret at all"}
    found = forms({name: base64.b64encode(text.encode()).decode() for name, text in values.items()})

    assert found == set()


def test_an_object_loses_values_and_keeps_names() -> None:
    harmless: list[object] = [
        {"name": "LOG_LEVEL", "value": "info"},
        {"name": "X_TOKEN", "valueFrom": {"secretKeyRef": {"name": "nats", "key": "syncer"}}},
    ]
    pod: dict[str, object] = {
        "env": [{"name": "NATS_PASSWORD", "value": SECRET}, *harmless],
        "args": [f"--url=nats://a:{SECRET}@b", "--password", SECRET, "--token-file", "/run/token"],
        "automountServiceAccountToken": False,
        "volumes": [
            {"name": "keys", "secret": {"secretName": "slurm-keys", "items": [{"key": "a", "path": "b"}]}}
        ],
        "serviceAccountToken": {"audience": "hooks", "expirationSeconds": 3600, "path": "token"},
    }

    found = Redactor().value(pod)

    assert SECRET not in json.dumps(found)
    assert found == pod | {
        "env": [{"name": "NATS_PASSWORD", "value": REDACTED}, *harmless],
        "args": [f"--url=nats://{REDACTED}@b", "--password", REDACTED, "--token-file", "/run/token"],
    }


@pytest.mark.parametrize("levels", [70, 5000])
def test_json_that_is_nested_without_end_goes(levels: int) -> None:
    text = "[" * levels + f'{{"password": "{SECRET}"}}' + "]" * levels

    assert SECRET not in redacted(text)


def test_json_in_strings_of_json_without_end_goes() -> None:
    text = json.dumps({"password": SECRET})
    for _ in range(14):
        text = "[" * 60 + json.dumps(text) + "]" * 60

    assert SECRET not in redacted(text)


PARTS = st.sampled_from(
    [
        *"abZ9 \n:=\"'{}[]|>-/@\\,#",
        *("password", "token: ", "://", "  ", LONG, "Bearer ", "name: ", "value: ", "\r\n"),
    ]
)


@given(st.lists(PARTS, max_size=40).map("".join))
def test_what_was_redacted_does_not_change_again(text: str) -> None:
    once = redacted(text)

    assert redacted(once) == once


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "pass",
        "--",
        "password=",
        "password='",
        "://a",
        "Bearer ",
        "eyJ",
        "eyJaaaaa.",
        "-----BEGIN A",
        '{"a":',
        "= ",
        "Aa1/",
        "mysql ",
        "name:a ",
        " ",
        "\\",
        "-u a:",
        "$6$",
    ],
)
def test_a_long_hostile_line_is_no_work_without_bound(part: str) -> None:
    assert len(redacted(part * (400_000 // len(part)))) < 2 * LINE_CHARS


@pytest.mark.parametrize("head", ["-----BEGIN PRIVATE KEY-----", ""])
@pytest.mark.parametrize("part", ["-", " ", "-----EN"])
def test_a_long_end_of_a_key_is_no_work_without_bound(head: str, part: str) -> None:
    assert len(redacted(head + part * (400_000 // len(part)))) < 2 * LINE_CHARS


def test_many_settings_after_a_long_indent_are_no_work_without_bound() -> None:
    assert len(redacted(" " * 30_000 + 'pw="a",' * 4_000)) < 3 * LINE_CHARS
