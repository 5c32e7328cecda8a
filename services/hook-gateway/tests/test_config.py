import pytest

from sunk_hook_gateway.config import PREFIX, read_config
from sunk_runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        pytest.param({}, "CLUSTER is missing", id="missing"),
        pytest.param({"CLUSTER": "c1", "HTTP_PRT": "1"}, "HTTP_PRT; known", id="a typo"),
        pytest.param({"CLUSTER": "C 1"}, "CLUSTER='C 1'", id="a name that is not allowed"),
        pytest.param({"CLUSTER": "c1", "HTTP_PORT": "70000"}, "HTTP_PORT='70000'", id="a port too high"),
        pytest.param({"CLUSTER": "c1", "POLL_S": "0"}, "POLL_S='0'", id="no time at all"),
        pytest.param({"CLUSTER": "c1", "TOKEN_KEYS_FILE": "/k"}, "TOKEN_ISSUER", id="half a pair"),
        pytest.param(
            {"CLUSTER": "c1", "TOKEN_KEYS_FILE": "/k", "TOKEN_ISSUER": "i", "STATIC_TOKEN_FILE": "/s"},
            "set only one of them",
            id="two ways at once",
        ),
        pytest.param({"CLUSTER": "c1", "TLS_CERT_FILE": "/c"}, "set both or none", id="no key"),
        pytest.param(
            {"CLUSTER": "c1", "TLS_CERT_FILE": "/c", "TLS_KEY_FILE": "/k", "TLS_REQUIRED": "false"},
            "TLS_REQUIRED=false needs SUNK_HOOK_GATEWAY_HOOKS_PORT",
            id="no port without TLS",
        ),
    ],
)
def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(PREFIX + name, value)

    with pytest.raises(ConfigError) as refused:
        read_config()
    assert named in str(refused.value)
