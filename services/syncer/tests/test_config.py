"""What the syncer's settings may be."""

import pytest

from sunk_runtime.errors import ConfigError
from sunk_syncer.config import PREFIX, read_config


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}CLUSTER", "c1")


def test_one_node_may_be_read_as_a_list_and_none_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}LIST_FROM", "1")
    assert read_config().list_from == 1

    monkeypatch.setenv(f"{PREFIX}LIST_FROM", "0")
    with pytest.raises(ConfigError, match="LIST_FROM"):
        read_config()
