"""What `sunkctl doctor` finds in figures of services, by the tests of the alerts, with the same series."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sunk_ctl.figures import STARTED, Figures, Look, Reading, Sample, Samples, read
from sunk_ctl.runbook_rules import RULES, SERIES, bounds, symptoms

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
    ("SunkLocksRefused", True): "one in a minute says nothing of a quarter of an hour",
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
        reading(
            f"slurm/{pod}",
            cluster,
            before=_samples(looks["before"]),
            now={**_samples(looks["now"]), STARTED: (Sample({}, MINUTE_S * started[pod, cluster]),)},
        )
        for (pod, cluster), looks in pods.items()
    ]
    return Figures(readings=[retimed(one, MINUTE_S * at) for one in readings], time_s=MINUTE_S * at)


def retimed(one: Reading, time_s: float) -> Reading:
    """Return it as looked at then, and a minute before."""
    before = Look(time_s - MINUTE_S, one.before.samples) if one.before else None
    return msgspec.structs.replace(one, now=Look(time_s, one.now.samples), before=before)


def reading(
    pod: str,
    cluster: str = "",
    *,
    before: Samples | None = None,
    service: str = "",
    now: Samples | None = None,
) -> Reading:
    """Return what a Pod says, at 100,000 s, and 20 s before."""
    first = Look(99_980, before) if before is not None else None
    return Reading(pod=pod, service=service, cluster=cluster, before=first, now=Look(100_000, now or {}))


def runbooks(
    *readings: Reading,
    silent: frozenset[tuple[str, str]] = frozenset(),
    others: Mapping[str, float] | None = None,
) -> list[str]:
    """Return which rules find something, with other bounds."""
    found = symptoms(Figures(readings=readings, time_s=100_000, silent=silent), others or {})
    return [one.runbook for one in found]


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
    found = [one for one in symptoms(figures(case), {}) if one.runbook == name]

    assert bool(found) == bool(wanted), [one.what for one in found]
    for one in wanted:
        labels = one["exp_labels"]
        kinds = {"kind", "cause", "reason", "action", "consumer", "nodeset", "call", "lease"}
        said = [labels[label] for label in kinds & labels.keys()]
        where = labels.get("instance", "")
        assert any(all(word in each.what for word in said) and where in each.where for each in found)


def test_each_alert_has_a_rule_with_its_series_its_bound_and_what_its_runbook_says_to_do_first() -> None:
    expressions = {one["alert"]: one["expr"] for one in ALERTS}
    known = bounds(ALERTS)

    assert [rule.alert for rule in RULES] == list(expressions)
    for rule in RULES:
        assert [name for name in rule.series if name not in expressions[rule.alert]] == []
        assert rule.bound == known.get(rule.alert, 0.0)
        page = (ROOT / f"docs/runbooks/{rule.alert}.md").read_text()
        what = page.partition("## What to do\n\n")[2].replace("\n", " ").replace("`", "")
        assert re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", what).startswith(f"{rule.fix}"), rule.alert


def test_a_release_with_other_bounds_is_judged_by_these() -> None:
    waits = reading("slurm/e", now={"sunk_placement_waiting_oldest_age_seconds": (Sample({}, 7200.0),)})
    rule = {"alert": "SunkPlacementWaitsLong", "expr": "sunk_placement_waiting_oldest_age_seconds > 86400"}

    assert runbooks(waits) == ["SunkPlacementWaitsLong"]
    assert runbooks(waits, others=bounds([rule])) == []
    assert bounds([{"alert": "Other", "expr": "x > 1"}, {"alert": "SunkBusSilent"}, {}]) == {}


@pytest.mark.parametrize(
    ("bound", "times", "is_found"), [(3, 3, False), (3, 4, True), (1, 2, True), (1, 1, False)]
)
def test_a_counter_that_has_risen_above_the_bound_of_its_release_is_found_however_low_that_is(
    bound: float,
    times: float,
    is_found: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    refusals = (Sample({"answer": "drain"}, times),)
    young = reading("slurm/g", now={"sunk_hook_refusals_total": refusals, STARTED: (Sample({}, 99_900.0),)})

    assert runbooks(young, others={"SunkLocksRefused": bound}) == ["SunkLocksRefused"] * is_found


def leader(pod: str, cluster: str, now: float, before: float | None = None) -> Reading:
    """Return a syncer that leads, or does not."""
    labels = {"lease": "syncer"}
    known = {"sunk_leader": (Sample(labels, now if before is None else before),)}
    state = (Sample({"kind": "jobs"}, 1.0),)
    series = {"sunk_leader": (Sample(labels, now),), "sunk_state_age_seconds": state}
    return reading(pod, cluster, before=known, service="sunk-syncer", now=series)


def test_no_leader_is_found_where_none_leads_at_both_looks_and_all_answer() -> None:
    assert runbooks(leader("a", "c", 1), leader("b", "c", 0)) == []
    assert runbooks(leader("a", "c", 0), leader("b", "c", 0)) == ["SunkNoLeader"]
    assert runbooks(leader("a", "c", 0, before=1), leader("b", "c", 0)) == []
    assert runbooks(leader("b", "c", 0), silent=frozenset({("c", "sunk-syncer")})) == []
    assert runbooks(leader("b", "c", 0), silent=frozenset({("other", "sunk-syncer")})) == ["SunkNoLeader"]


def test_a_silent_exporter_is_unknown_and_one_that_is_gone_is_found() -> None:
    syncer = reading("a", "c", service="sunk-syncer")

    assert runbooks(syncer) == ["SunkExporterSilent"]
    assert runbooks(syncer, silent=frozenset({("c", "sunk-metrics-exporter")})) == []


def test_a_list_is_old_only_if_no_leader_could_tell_otherwise() -> None:
    told = (Sample({"kind": "nodes"}, 10_000.0),)
    stands_by = reading("b", service="sunk-syncer", now={"sunk_syncer_answered_timestamp_seconds": told})

    assert runbooks(stands_by) == ["SunkSlurmListStale"]
    assert runbooks(stands_by, silent=frozenset({("", "sunk-syncer")})) == []


@pytest.mark.parametrize(("share", "found"), [(0.31, []), (0.2, ["Nats"]), (0.05, ["", "Nats"])])
def test_a_certificate_that_was_not_renewed_in_time_is_found(share: float, found: list[str]) -> None:
    end = 100_000 + 1000 * share
    now = {
        f"sunk_{service}_certificate_{what}_timestamp_seconds": (Sample({"file": "tls.crt"}, moment),)
        for service in ("hook", "nats")
        for what, moment in (("start", end - 1000), ("end", end))
    }
    names = {"": "SunkCertificateEnds", "Nats": "SunkNatsCertificateNotRenewed"}

    assert runbooks(reading("p", now=now)) == [names[one] for one in found]


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

    assert ("SunkPrologsDrainNodes" in runbooks(reading("slurm/e", now=now))) is found


def counted(started: float, before: float | None, now: float) -> list[float]:
    known = {"c": (Sample({}, before),)} if before is not None else None
    one = reading("s", before=known, now={"c": (Sample({}, now),), STARTED: (Sample({}, started),)})
    return [point.value for point in Figures(readings=[one], time_s=100_000).rises("c", 3600)]


def test_a_counter_counts_from_its_last_look_or_from_a_start_within_the_time() -> None:
    assert counted(started=0, before=5, now=5) == []
    assert counted(started=0, before=5, now=7) == [2]
    assert counted(started=0, before=None, now=500) == []  # Since when is not known.
    assert counted(started=99_000, before=None, now=5) == [5]
    assert counted(started=99_999, before=5, now=1) == [1]


def test_counters_of_several_pods_are_added_up_as_the_alert_does_and_one_event_is_none() -> None:
    def gateway(pod: str, before: float, now: float) -> Reading:
        def told(value: float) -> tuple[Sample, ...]:
            return (Sample({"answer": "drain"}, value), Sample({"answer": "requeue"}, value))

        return reading(
            pod,
            "c",
            before={"sunk_hook_refusals_total": told(before)},
            now={"sunk_hook_refusals_total": told(now)},
        )

    def call(outcome: str, times: float) -> tuple[Sample, ...]:
        return (Sample({"call": "diag", "outcome": outcome}, times),)

    name = "sunk_slurm_call_duration_seconds_count"
    calls = reading("s", before={name: ()}, now={name: call("failed", 2) + call("503", 2)})
    few = reading("s", before={name: ()}, now={name: call("failed", 2) + call("200", 200)})

    assert "SunkLocksRefused" in runbooks(gateway("a", 7, 8), gateway("b", 7, 8))
    assert "SunkLocksRefused" not in runbooks(gateway("a", 7, 8), gateway("b", 7, 7.5))
    assert runbooks(calls) == ["SunkSlurmCallsFail"]
    assert runbooks(few) == []


def test_a_pod_that_has_just_started_hides_nothing_of_the_others() -> None:
    def pod(
        name: str, started: float, series: str, labels: dict[str, str], now: float, **more: float
    ) -> Reading:
        found = {series: (Sample(labels, now),), STARTED: (Sample({}, started),)}
        others = {other: (Sample({}, value),) for other, value in more.items()}
        return reading(name, "c", before={series: (Sample(labels, 0.0),)}, now=found | others)

    failed = ("sunk_publishes_failed_total", {"reason": "unavailable"})
    full, young = pod("a", 0, *failed, 10, sunk_bus_full=1), pod("b", 99_900, *failed, 1, sunk_bus_full=0)
    calls = ("sunk_slurm_call_duration_seconds_count", {"call": "diag", "outcome": "failed"})
    refused = ("sunk_syncer_refused_total", {"action": "DrainNode"})

    for readings in ((full, young), (young, full)):
        assert "SunkBusFull" in runbooks(*readings)
    for series, alert in ((calls, "SunkSlurmCallsFail"), (refused, "SunkSlurmRefuses")):
        assert alert in runbooks(pod("a", 0, *series, 10), pod("b", 99_900, *series, 1))


def test_a_placeholder_without_a_pod_is_found_as_it_is_cancelled() -> None:
    name = "sunk_placement_stray_jobs_total"
    one = reading("s", "c", before={name: (Sample({}, 4.0),)}, now={name: (Sample({}, 5.0),)})

    assert "SunkPlaceholderWithoutPod" in runbooks(one)


def test_what_the_services_of_all_slurm_clusters_count_has_a_place_too() -> None:
    name = "sunk_dead_letters_total"
    one = reading("s", before={name: ()}, now={name: (Sample({"reason": "undecodable"}, 1.0),)})
    (found,) = symptoms(Figures(readings=[one], time_s=100_000), {})

    assert (found.runbook, found.where) == ("SunkDeadLetters", "the Kubernetes cluster")


def test_a_silent_bus_is_told_once_for_each_pod() -> None:
    ages = tuple(Sample({"bucket": name}, age) for name, age in (("a", 99.0), ("b", 100.0), ("c", 2.0)))
    found = symptoms(Figures(readings=[reading("s", now={"sunk_view_age_seconds": ages})], time_s=0), {})

    assert [one.what for one in found] == ["has received nothing from NATS for 100 s"]


@pytest.mark.parametrize(
    ("written", "bound"), [("> 1.2096e+06", 1209600), ("> 2e+06", 2000000), ("> 0.1", 0.1), ("< 7", 7)]
)
def test_a_bound_is_read_as_helm_writes_it(written: str, bound: float) -> None:
    assert bounds([{"alert": "SunkPlacementWaitsLong", "expr": f"x {written}"}]) == {
        "SunkPlacementWaitsLong": bound
    }
    assert bounds([{"alert": "SunkPlacementWaitsLong", "expr": "x > 1.2.3"}]) == {}


def test_what_a_service_does_not_label_or_was_never_told_is_said_all_the_same() -> None:
    odd = (Sample({}, 999.0), Sample({"kind": "jobs", "value": "x", "{age}": "{value}"}, math.inf))
    found = symptoms(Figures(readings=[reading("e", now={"sunk_state_age_seconds": odd})], time_s=0), {})

    assert [one.what for one in found] == [
        "Slurm's ? on the bus are old (17 min)",
        "Slurm's jobs on the bus are old (never reported)",
    ]


@pytest.mark.parametrize("end", ["\\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_name_that_a_user_chose_is_no_series(end: str) -> None:
    page = (
        f'# TYPE slurm_job gauge\nslurm_job{{name="a{end}sunk_leader 1{end}sunk_leader x{end}"}} 1\n'
        'sunk_leader{lease="a b"} 0\nsunk_leaderx 1\n'
    )

    assert read(page, SERIES) == {"sunk_leader": (Sample({"lease": "a b"}, 0.0),)}
