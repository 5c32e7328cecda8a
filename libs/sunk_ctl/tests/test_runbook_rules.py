"""What `sunkctl doctor` finds in figures of services, by the tests of the alerts, with the same series."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sunk_ctl.figures import STARTED, Figures, Reading, Sample, Samples, read
from sunk_ctl.runbook_rules import RULES, SERIES, symptoms

ROOT: Final = Path(__file__).parents[3]
ALERTS: Final = yaml.safe_load((ROOT / "helm/sunk/files/alerts.yaml").read_text())["groups"][0]["rules"]
CASES: Final[list[dict[str, Any]]] = [
    {**test, "rule": rule}
    for test in yaml.safe_load((ROOT / "tests/contract/alerts_test.yaml").read_text())["tests"]
    for rule in test["alert_rule_test"]
]
MINUTE_S: Final = 60
LOOKBACK: Final = 5
"""Minutes for which Prometheus takes the last value."""
# Of these two looks see less than an alert, which knows the past; or more, as an alert waits (`for`).
ELSE: Final = {
    ("SunkExporterSilent", True): "a Pod that is gone has no figures: its workload says so",
    ("SunkNoLeader", True): "the same",
    ("SunkPrologsDrainNodes", True): "the most of five minutes",
    ("SunkPlaceholderWithoutPod", True): "a rise ten minutes ago",
    ("SunkCertificateEnds", False): "it waits ten minutes",
    ("SunkNatsCertificateNotRenewed", False): "the same",
}


def values(text: str) -> list[float | None]:
    """Return what promtool's notation has for each minute: ``a+bxN``, ``axN``, ``_xN``, ``stale``."""
    found: list[float | None] = []
    for word in text.split():
        start, _, times = word.partition("x")
        count = int(times or 0) + 1 if not start.startswith("_") else int(times or 1)
        if start in {"_", "stale"}:
            found += [None] * count
            continue
        match = re.fullmatch(r"(-?[\d.]+)([+-][\d.]+)?", start)
        assert match, word
        found += [float(match[1]) + float(match[2] or 0) * step for step in range(count)]
    return found


def series(text: str) -> tuple[str, dict[str, str]]:
    ((sample,),) = [family.samples for family in text_string_to_metric_families(f"{text} 0\n")]
    return sample.name, sample.labels


def minutes(text: str) -> int:
    return int(text.removesuffix("m"))


def figures(case: dict[str, Any]) -> Figures:
    """Return what two looks a minute apart see at the moment of the test."""
    at = minutes(case["rule"]["eval_time"])
    pods: dict[tuple[str, str], dict[str, dict[str, list[Sample]]]] = {}
    started: dict[tuple[str, str], int] = {}
    for one in case["input_series"]:
        name, labels = series(one["series"])
        key = labels.pop("instance", "i"), labels.pop("slurm_cluster", "")
        told = values(one["values"])
        first = next(number for number, value in enumerate(told) if value is not None)
        started[key] = max(started.get(key, 0), first) if first else started.get(key, -(10**6))
        looks = pods.setdefault(key, {"before": {}, "now": {}})
        for look, number in (("before", at - 1), ("now", at)):
            value = told[min(number, len(told) - 1)] if number < len(told) + LOOKBACK else None
            if value is not None:
                looks[look].setdefault(name, []).append(Sample(labels, value))
    readings = [
        Reading(
            pod=f"slurm/{pod}",
            cluster=cluster,
            before=_samples(looks["before"]),
            now={**_samples(looks["now"]), STARTED: (Sample({}, MINUTE_S * started[pod, cluster]),)},
        )
        for (pod, cluster), looks in pods.items()
    ]
    return Figures(readings=readings, time_s=MINUTE_S * at, apart_s=MINUTE_S)


def _samples(found: dict[str, list[Sample]]) -> Samples:
    return {name: tuple(samples) for name, samples in found.items()}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{case['rule']['alertname']}-{bool(case['rule']['exp_alerts'])}")
        for case in CASES
        if (case["rule"]["alertname"], bool(case["rule"]["exp_alerts"])) not in ELSE
    ],
)
def test_a_rule_finds_what_its_alert_finds(case: dict[str, Any]) -> None:
    name, wanted = case["rule"]["alertname"], case["rule"]["exp_alerts"]
    found = [one for one in symptoms(figures(case)) if one.runbook == name]

    assert bool(found) == bool(wanted), [one.what for one in found]
    for one in wanted:
        labels = one["exp_labels"]
        kinds = {"kind", "cause", "reason", "action", "consumer", "nodeset", "call", "lease"}
        said = [labels[label] for label in kinds & labels.keys()]
        where = labels.get("instance", "")
        assert any(all(word in each.what for word in said) and where in each.where for each in found)


def test_each_alert_has_a_rule_and_looks_at_the_same_series() -> None:
    expressions = {one["alert"]: one["expr"] for one in ALERTS}

    assert [rule.alert for rule in RULES] == list(expressions)
    for rule in RULES:
        assert [name for name in rule.series if name not in expressions[rule.alert]] == []
        assert rule.fix.endswith(".")


def test_a_cluster_without_an_exporter_or_a_leader_is_named_whichever_pods_stand_by() -> None:
    def reading(pod: str, cluster: str, **series: tuple[Sample, ...]) -> Reading:
        return Reading(pod=pod, cluster=cluster, now=series)

    leads, waits = (Sample({"lease": "syncer"}, 1.0),), (Sample({"lease": "syncer"}, 0.0),)
    readings = [
        reading(
            "slurm/a", "well", sunk_leader=leads, sunk_state_age_seconds=(Sample({"kind": "nodes"}, 1.0),)
        ),
        reading("slurm/b", "well", sunk_leader=waits),
        reading("other/a", "ill", sunk_leader=waits),
        reading("other/b", "ill", sunk_leader=waits),
    ]
    found = symptoms(Figures(readings=readings, time_s=0, apart_s=20))

    assert [(one.runbook, one.where) for one in found] == [
        ("SunkExporterSilent", "ill"),
        ("SunkNoLeader", "ill"),
    ]


@pytest.mark.parametrize(("share", "found"), [(0.31, set[str]()), (0.2, {"nats"}), (0.05, {"nats", "hook"})])
def test_a_certificate_that_was_not_renewed_in_time_is_found(share: float, found: set[str]) -> None:
    now = {
        f"sunk_{service}_certificate_{end}_timestamp_seconds": (Sample({"file": "tls.crt"}, moment),)
        for service in ("hook", "nats")
        for end, moment in (("start", 0.0), ("end", 1000.0))
    }
    said = symptoms(Figures(readings=[Reading(pod="p", now=now)], time_s=1000 * (1 - share), apart_s=20))

    names = {"SunkCertificateEnds": "hook", "SunkNatsCertificateNotRenewed": "nats"}
    assert {names[one.runbook] for one in said} == found


@pytest.mark.parametrize(("nodes", "drained", "found"), [(300, 6, True), (300, 4, False), (10, 3, True)])
def test_more_nodes_than_failed_locks_may_drain_are_drained_by_prologs(
    nodes: int,
    drained: int,
    found: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    now = {
        "slurm_nodes_total": (Sample({}, nodes),),
        "sunk_drained_nodes": (Sample({"cause": "prolog pre-hook failed"}, drained),),
    }
    looked = Figures(readings=[Reading(pod="slurm/e", now=now)], time_s=0, apart_s=20)

    assert ("SunkPrologsDrainNodes" in {one.runbook for one in symptoms(looked)}) is found


def test_a_counter_counts_from_its_last_look_or_from_a_start_within_the_time() -> None:
    def rises(started: float, before: float, now: float) -> list[float]:
        reading = Reading(
            pod="slurm/s",
            before={"c": (Sample({}, before),)},
            now={"c": (Sample({}, now),), STARTED: (Sample({}, started),)},
        )
        found = Figures(readings=[reading], time_s=10_000, apart_s=20)
        return [point.value for point in found.rises("c", 3600)]

    assert rises(started=0, before=5, now=5) == []
    assert rises(started=0, before=5, now=7) == [2]
    assert rises(started=9000, before=5, now=5) == [5]
    assert rises(started=9999, before=5, now=1) == [1]


def test_only_what_rules_look_at_is_read_whatever_else_a_page_of_metrics_has() -> None:
    page = (
        '# TYPE slurm_job gauge\nslurm_job{name="a\\nsunk_leader 1"} 1\n'
        'sunk_leader{lease="a b"} 0\nsunk_leaderx 1\n'
    )

    assert read(page, SERIES) == {"sunk_leader": (Sample({"lease": "a b"}, 0.0),)}
