from pathlib import Path

import pytest

from sunk_pod_scheduler.config import PREFIX, read_config
from sunk_runtime.errors import ConfigError
from sunk_slurm.tokens import FileUserTokens, KeyUserTokens


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    given = {"CLUSTER": "lab", "KEY_FILE": key, "SLURM_KEY_FILE": key, "GPU_TYPES": "NVIDIA_H100=h100"}
    for name, value in given.items():
        monkeypatch.setenv(PREFIX + name, str(value))
    return key


def test_the_documented_arguments_override_the_environment() -> None:
    config = read_config(["--scheduler-name=a", "--scheduler-name", "b", "--slurm-kill-wait=1m30s"])

    assert config.scheduler_names == ("a", "b")
    assert config.rules().kill_wait_s == 90
    assert config.rules().gpu_types == {"NVIDIA_H100": "h100"}
    assert config.key() == b"k" * 32


@pytest.mark.parametrize(
    ("variable", "value", "arguments", "said"),
    [
        pytest.param("", "", ["--slurm-kill-wait=soon"], "soon", id="no duration"),
        pytest.param("", "", ["--slurm-kill-wait=4s"], "--slurm-kill-wait", id="too short"),
        pytest.param("", "", ["--colour=red"], "unknown arguments: --colour", id="unknown argument"),
        pytest.param("SLURM_TOKEN_FILE", "/t", [], "SLURM_TOKEN_FILE", id="two ways to get a token"),
        pytest.param("USER_ID", "0", [], "USER_ID", id="root"),
        pytest.param("SCOPE", "world", [], "SCOPE", id="unknown scope"),
        pytest.param("TYPO", "1", [], "TYPO", id="unknown setting"),
    ],
)
def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, arguments: list[str], said: str
) -> None:
    if variable:
        monkeypatch.setenv(PREFIX + variable, value)

    with pytest.raises(ConfigError, match=said):
        read_config(arguments).tokens(PREFIX)


def test_jobs_are_submitted_by_their_users_where_we_have_tokens_of_theirs_or_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(read_config([]).user_tokens(), KeyUserTokens)

    monkeypatch.delenv(PREFIX + "SLURM_KEY_FILE")
    monkeypatch.setenv(PREFIX + "SLURM_TOKEN_FILE", "/token")
    assert read_config([]).user_tokens() is None

    monkeypatch.setenv(PREFIX + "USER_TOKENS_FILE", "/users.json")
    assert isinstance(read_config([]).user_tokens(), FileUserTokens)


def test_a_key_that_is_too_short_or_missing_is_named_and_never_shown(settings: Path) -> None:
    settings.write_bytes(b"secret")
    config = read_config([])

    with pytest.raises(ConfigError, match="less than 32 bytes") as caught:
        config.key()
    assert "secret" not in str(caught.value)
    settings.unlink()
    with pytest.raises(ConfigError, match="cannot read"):
        config.key()


@pytest.mark.parametrize(
    ("scope", "namespaces", "watched"),
    [("cluster", "", (None,)), ("namespace", "", ("slurm",)), ("namespace", "a,b", ("a", "b"))],
)
def test_a_blank_scope_is_our_own_namespace(
    monkeypatch: pytest.MonkeyPatch, scope: str, namespaces: str, watched: tuple[str | None, ...]
) -> None:
    monkeypatch.setenv(PREFIX + "SCOPE", scope)
    monkeypatch.setenv(PREFIX + "NAMESPACES", namespaces)

    assert read_config([]).watched_namespaces == watched
