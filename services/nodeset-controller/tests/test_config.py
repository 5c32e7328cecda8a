import pytest

from sunk_nodeset_controller.config import PREFIX, Config, read_config
from sunk_nodeset_controller.locks.model import LockTaint
from sunk_nodeset_controller.node_controller.reboots import RebootSettings
from sunk_runtime.config import load
from sunk_runtime.errors import ConfigError


def test_clusters_are_a_list() -> None:
    config = load(Config, {PREFIX + "CLUSTERS": "lab,prod"}, PREFIX)

    assert config.clusters == ("lab", "prod")
    assert config.lock_eviction.taint == LockTaint()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        pytest.param({}, "SUNK_NODESET_CONTROLLER_CLUSTERS is missing", id="no cluster"),
        pytest.param({"CLUSTERS": "Lab"}, "SUNK_NODESET_CONTROLLER_CLUSTERS='Lab'", id="no cluster's name"),
        pytest.param({"CLUSTERS": "lab", "LEASE_TTL_S": "1"}, "LEASE_TTL_S='1'", id="a lease too short"),
        pytest.param({"CLUSTERS": "lab", "HTTP_PROT": "1"}, "HTTP_PROT", id="a typo"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(Config, {PREFIX + name: value for name, value in given.items()}, PREFIX)


def test_a_cluster_has_its_own_condition_and_reason_for_reboots_or_those_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("CLUSTERS", "lab,prod"),
        ("NODE_PERMISSIONS", "prod"),
        ("REBOOT_CONDITIONS", "prod=example.com/Phase"),
        ("REBOOT_REASONS", "lab=off,prod=power-cycle"),
    ):
        monkeypatch.setenv(PREFIX + name, value)

    config = read_config()

    assert config.reboots("lab") == RebootSettings(reason="off")
    assert config.reboots("prod") == RebootSettings(
        is_permitted=True, condition="example.com/Phase", reason="power-cycle"
    )


@pytest.mark.parametrize("entry", ["prod", "=x", "prod="])
def test_a_reason_without_its_cluster_is_refused(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    monkeypatch.setenv(PREFIX + "CLUSTERS", "prod")
    monkeypatch.setenv(PREFIX + "REBOOT_REASONS", entry)

    with pytest.raises(ConfigError, match=r"REBOOT_REASONS: .* is not cluster=value"):
        read_config()


def test_a_reason_for_a_cluster_that_is_none_of_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "CLUSTERS", "prod")
    monkeypatch.setenv(PREFIX + "REBOOT_REASONS", "pord=off")

    with pytest.raises(ConfigError, match="REBOOT_REASONS: pord is not in"):
        read_config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOCK_DRY_RUN", "true"),
        ("LOCK_EXEMPT_NAMESPACES", "kube-system"),
        ("LOCK_EXEMPT_PRIORITY_CLASSES", "high"),
        ("LOCK_DELETE_AFTER_S", "60"),
    ],
)
def test_what_spares_pods_from_eviction_is_refused_where_kubernetes_does_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + "CLUSTERS", "lab")
    monkeypatch.setenv(PREFIX + name, value)

    with pytest.raises(ConfigError, match=name):
        read_config()
    monkeypatch.setenv(PREFIX + "LOCK_EFFECT", "NoSchedule")
    assert read_config().lock_eviction.taint.evicts
