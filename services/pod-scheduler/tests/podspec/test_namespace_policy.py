"""What of Slurm a namespace may use."""

from pathlib import Path

import msgspec
import pytest

from sunk_kube.pods import Pod
from sunk_kube.wellknown import PREFIX
from sunk_pod_scheduler.config import Config
from sunk_pod_scheduler.gangs.job_shape import common
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_pod_scheduler.podspec.namespace_policy import Grant, Identity, Policy, PriorityClassTerms
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.testing.builders import manifest
from sunk_runtime.errors import ConfigError

POLICY = Policy(
    namespaces={
        "*": Grant(qos=("normal", "low"), priority_max=1000),
        "ml": Grant(user_ids=(1001,), accounts=("ml", "lab"), partitions=("batch", "long"), reservations=()),
    }
)


@pytest.mark.parametrize(
    ("namespace", "annotations", "refused"),
    [
        (
            "web",
            {"user-id": "1001"},
            ["user-id: namespace web may not use 1001", "policyByNamespace.web.userIds"],
        ),
        ("ml", {"user-id": "0"}, ["user-id: 0 is root and is always rejected"]),
        (
            "ml",
            {"group-id": "1001"},
            ["group-id: namespace ml may not use 1001", "policyByNamespace.ml.groupIds"],
        ),
        (
            "ml",
            {"account": "web"},
            ["account: namespace ml may not use web", "policyByNamespace.ml.accounts"],
        ),
        ("ml", {"qos": "urgent"}, ["qos: namespace ml may not use urgent", "policyByNamespace.ml.qos"]),
        ("ml", {"partition": "batch,debug"}, ["partition: namespace ml may not use debug", ".partitions"]),
        ("ml", {"reservation": "gala"}, ["reservation: namespace ml may not use gala", ".reservations"]),
        (
            "web",
            {"priority": "1001"},
            ["may not use 1001, only up to 1000", "policyByNamespace.web.priorityMax"],
        ),
    ],
)
def test_what_a_namespace_may_not_use_is_refused_with_what_to_add_to_the_policy(
    namespace: str, annotations: dict[str, str], refused: list[str]
) -> None:
    found = validate(in_namespace(namespace, annotations), Rules(policy=POLICY))

    assert isinstance(found, tuple)
    assert len(found) == 1
    assert all(words in found[0] for words in refused)


def test_a_pod_that_names_nothing_gets_the_first_of_what_its_namespace_may_use() -> None:
    found = validate(in_namespace("ml", {}), Rules(policy=POLICY))

    assert isinstance(found, ValidatedPod)
    assert found.identity == Identity(64100)
    assert (found.requested.account, found.requested.partition, found.requested.qos) == (
        "ml",
        "batch",
        "normal",
    )
    assert found.requested.reservation == ""


@pytest.mark.parametrize(
    ("annotations", "group"),
    [
        ({}, None),
        ({"group-id": "64100"}, None),
        ({"group-id": "7"}, 7),
        ({"user-id": "1001", "group-id": "7"}, 7),
        ({"user-id": "1001", "group-id": "64100"}, "group-id: namespace web may not use 64100"),
    ],
)
def test_a_job_has_its_users_own_group_unless_another_is_granted(
    annotations: dict[str, str], group: int | str | None
) -> None:
    policy = Policy(namespaces={"web": Grant(user_ids=(1001,), group_ids=(7,))})

    found = validate(in_namespace("web", annotations), Rules(policy=policy))

    if isinstance(group, str):
        assert isinstance(found, tuple)
        assert group in found[0]
    else:
        assert isinstance(found, ValidatedPod)
        assert found.identity.group_id == group


def test_what_a_namespace_may_use_is_passed_on() -> None:
    named = {"user-id": "1001", "account": "lab", "partition": "long,batch", "qos": "low", "priority": "1000"}

    found = validate(in_namespace("ml", named), Rules(policy=POLICY))

    assert isinstance(found, ValidatedPod)
    assert found.identity == Identity(1001, is_own=True)
    assert (found.requested.account, found.requested.partition, found.requested.qos) == (
        "lab",
        "long,batch",
        "low",
    )


FREE = {"account": "a", "qos": "q", "partition": "p", "reservation": "r", "priority": "4294967293"}


@pytest.mark.parametrize("policy", [Policy(), Policy(namespaces={"ml": Grant(accounts=("a",))})])
@pytest.mark.parametrize("name", FREE)
def test_without_a_word_in_the_policy_a_pod_chooses_nothing_of_slurm(policy: Policy, name: str) -> None:
    (refused,) = refused_of("web", {name: FREE[name]}, policy)

    field = "priorityMax" if name == "priority" else name if name == "qos" else f"{name}s"
    assert refused.startswith(f"{PREFIX}{name}: namespace web may not use {FREE[name]}; an administrator may")
    assert f"scheduler.policyByNamespace.web.{field} of helm/slurm" in refused


def test_without_a_word_in_the_policy_a_pod_is_the_service_user_with_slurms_own_defaults() -> None:
    found = validate(in_namespace("web", {"user-id": "64100"}), Rules())

    assert isinstance(found, ValidatedPod)
    assert found.identity == Identity(64100)
    assert found.requested == JobOptions(user_id=64100)


def test_an_open_policy_lets_pods_name_anything_but_other_users_and_what_a_grant_says() -> None:
    policy = Policy(default="allow", namespaces={"ml": Grant(qos=("low",))})

    assert isinstance(validate(in_namespace("web", FREE), Rules(policy=policy)), ValidatedPod)
    assert len(refused_of("ml", FREE, policy)) == 1
    assert len(refused_of("web", {"user-id": "1001", "group-id": "1001"}, policy)) == 2


def refused_of(namespace: str, annotations: dict[str, str], policy: Policy) -> tuple[str, ...]:
    found = validate(in_namespace(namespace, annotations), Rules(policy=policy))
    assert isinstance(found, tuple)
    return found


def in_namespace(namespace: str, annotations: dict[str, str]) -> Pod:
    pod = manifest(annotations={PREFIX + name: value for name, value in annotations.items()})
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))


CLASSES = {"high": PriorityClassTerms(qos="urgent"), "low": PriorityClassTerms(qos="spare")}


def of_class(priority_class: str, annotations: dict[str, str] | None = None, namespace: str = "ml") -> Pod:
    pod = in_namespace(namespace, annotations or {})
    spec = msgspec.structs.replace(pod.spec, priority_class_name=priority_class)
    return msgspec.structs.replace(pod, spec=spec)


@pytest.mark.parametrize(
    ("priority_class", "annotations", "qos", "by"),
    [
        ("high", {}, "urgent", "high"),
        ("low", {}, "spare", "low"),
        ("high", {"qos": "spare"}, "spare", ""),
        ("unknown", {}, "normal", ""),
        ("", {}, "normal", ""),
    ],
)
def test_a_priority_class_becomes_the_qos_of_the_table_unless_the_pod_names_one(
    priority_class: str, annotations: dict[str, str], qos: str, by: str
) -> None:
    granted = {"ml": Grant(qos=("normal", "urgent", "spare"))}
    policy = Policy(namespaces=granted, priority_classes=CLASSES)

    found = validate(of_class(priority_class, annotations), Rules(policy=policy))

    assert isinstance(found, ValidatedPod)
    assert (found.requested.qos, found.priority_class) == (qos, by)


@pytest.mark.parametrize("namespaces", [{}, {"ml": Grant(accounts=("a",))}, {"web": Grant(qos=("low",))}])
def test_by_default_a_priority_class_gives_no_qos_that_its_namespace_was_not_granted(
    namespaces: dict[str, Grant],
) -> None:
    """Any tenant may name any PriorityClass."""
    policy = Policy(namespaces=namespaces, priority_classes=CLASSES)

    assert not isinstance(validate(of_class("high"), Rules(policy=policy)), ValidatedPod)
    found = validate(of_class("high"), Rules(policy=msgspec.structs.replace(policy, default="allow")))

    assert isinstance(found, ValidatedPod)
    assert found.requested.qos == "urgent"


@pytest.mark.parametrize(
    "namespaces", [{"ml": Grant(qos=())}, {"*": Grant(qos=("normal",))}, {"ml": Grant(qos=("spare",))}]
)
def test_a_list_of_qos_bounds_what_a_priority_class_gives_its_namespace(namespaces: dict[str, Grant]) -> None:
    policy = Policy(namespaces=namespaces, priority_classes=CLASSES, default="allow")

    means = "scheduler.priorityClasses gives high the QoS urgent, which namespace ml may not use"
    may = "an administrator may add it to scheduler.policyByNamespace.ml.qos of helm/slurm"
    assert validate(of_class("high"), Rules(policy=policy)) == (f"spec.priorityClassName: {means}; {may}",)


def test_the_members_of_a_gang_whose_priority_classes_mean_the_same_qos_agree_and_others_do_not() -> None:
    classes = CLASSES | {"top": PriorityClassTerms(qos="urgent")}
    rules = Rules(policy=Policy(priority_classes=classes, default="allow"))
    high, top, low = (validate(of_class(name), rules) for name in ("high", "top", "low"))

    assert isinstance(high, ValidatedPod)
    assert isinstance(top, ValidatedPod)
    assert isinstance(low, ValidatedPod)
    assert common(high) == common(top) != common(low)


def test_the_policy_is_read_from_its_file_and_a_typo_is_named(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(
        '{"namespaces": {"ml": {"userIds": [1001], "priorityMax": 10}}, "default": "allow", '
        '"priorityClasses": {"high": {"qos": "urgent"}}}'
    )
    config = Config(cluster="prod", key_file=tmp_path / "key", policy_file=file, user_id=7)

    policy = config.rules().policy

    assert policy.user_id == 7
    assert policy.grant("ml") == Grant(user_ids=(1001,), group_ids=(), priority_max=10)
    assert policy.priority_classes == {"high": PriorityClassTerms(qos="urgent")}

    file.write_text('{"namespaces": {"ml": {"partition": ["batch"]}}}')
    with pytest.raises(ConfigError, match=r"unknown field `partition` - at `\$.namespaces"):
        config.rules()

    file.write_text('{"default": "open"}')
    with pytest.raises(ConfigError, match=r"Invalid enum value 'open' - at `\$.default"):
        config.rules()

    file.write_text('{"priorityClasses": {"high": {"qos": "a b"}}}')
    with pytest.raises(ConfigError, match=r"priorityClasses"):
        config.rules()
