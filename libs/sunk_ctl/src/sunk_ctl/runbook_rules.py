"""What is wrong with an installed SUNK, by the figures of its services and the rules of the alerts. Pure.

What must stay true: each alert of helm/sunk/files/alerts.yaml has a rule here with its bound, what the tests
of the alerts show of an alert they show of its rule, and each says to do what its runbook says first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from sunk_ctl.figures import STARTED, Figures
from sunk_ctl.symptoms import (
    HOUR_S,
    MINUTE_S,
    Finds,
    above,
    bus_full,
    bus_silent,
    calls_fail,
    certificate_ends,
    lists_are_old,
    no_exporter,
    no_leader,
    nodesets_without_slurm,
    prologs_drain,
    rises_fast,
)


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    runbook: str
    """Name of the alert, and of its page in docs/runbooks; empty: there is none."""
    what: str
    where: str
    """The Pod that said so, or the Slurm cluster."""
    fix: str


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """When an alert's cause is there."""

    alert: str
    bound: float = 0.0
    """That of the alert, unless the release has another one."""
    series: tuple[str, ...]
    finds: Finds
    fix: str


def _certificate(service: str) -> tuple[str, ...]:
    return tuple(f"sunk_{service}_certificate_{end}_timestamp_seconds" for end in ("start", "end"))


RULES: Final = (
    Rule(
        alert="SunkSlurmStateStale",
        bound=120,
        series=("sunk_state_age_seconds",),
        finds=above("sunk_state_age_seconds", "Slurm's {kind} on the bus are old ({age})"),
        fix="Fix what is down.",
    ),
    Rule(
        alert="SunkSlurmListStale",
        bound=300,
        series=("sunk_syncer_answered_timestamp_seconds",),
        finds=lists_are_old,
        fix="Give slurmrestd what it lacks, or raise the time-out.",
    ),
    Rule(
        alert="SunkExporterSilent",
        series=("sunk_state_age_seconds",),
        finds=no_exporter,
        fix="Restart the exporter, or fix the bus.",
    ),
    Rule(
        alert="SunkNoLeader",
        series=("sunk_leader",),
        finds=no_leader,
        fix="Fix what the log names.",
    ),
    Rule(
        alert="SunkBusSilent",
        bound=60,
        series=("sunk_view_age_seconds",),
        finds=bus_silent,
        fix="Bring NATS back.",
    ),
    Rule(
        alert="SunkBusFull",
        series=("sunk_bus_full", "sunk_publishes_failed_total"),
        finds=bus_full,
        fix="Remove streams of Slurm clusters that are gone.",
    ),
    Rule(
        alert="SunkClockOff",
        bound=5,
        series=("sunk_clock_skew_seconds",),
        finds=above("sunk_clock_skew_seconds", "its clock and that of NATS differ by {age}"),
        fix="Synchronise the Node's clock (NTP, chrony).",
    ),
    Rule(
        alert="SunkSlurmCallsFail",
        bound=0.1,
        series=("sunk_slurm_call_duration_seconds_count",),
        finds=calls_fail,
        fix="Restart a slurmrestd that hangs.",
    ),
    Rule(
        alert="SunkSlurmRefuses",
        bound=20,
        series=("sunk_syncer_refused_total",),
        finds=rises_fast(
            *("sunk_syncer_refused_total", 15 * MINUTE_S),
            "Slurm refuses changes of its nodes: {action}",
            by=("action",),
            least=2,
        ),
        fix="Fix what Slurm names.",
    ),
    Rule(
        alert="SunkDeadLetters",
        series=("sunk_dead_letters_total",),
        finds=rises_fast(
            *("sunk_dead_letters_total", HOUR_S),
            "{value:.0f} messages became dead letters: {reason}",
            by=("reason",),
        ),
        fix="Fix the cause, then replay the messages: sunk-bus dead-letters --replay ID.",
    ),
    Rule(
        alert="SunkFactsNotRead",
        bound=1000,
        series=("sunk_event_lag",),
        finds=above("sunk_event_lag", "{value:.0f} facts wait for {consumer}"),
        fix="Restart the service if it hangs.",
    ),
    Rule(
        alert="SunkLockPendingLong",
        bound=600,
        series=("sunk_lock_pending_oldest_age_seconds",),
        finds=above("sunk_lock_pending_oldest_age_seconds", "a Node's lock is pending for {age}"),
        fix="Make the Pod leave: remove the cause of its finalizer, widen its budget, or end what it still "
        "does.",
    ),
    Rule(
        alert="SunkLocksRefused",
        bound=3,
        series=("sunk_hook_refusals_total",),
        finds=rises_fast(
            *("sunk_hook_refusals_total", 15 * MINUTE_S),
            "{value:.0f} prologs were refused: Pods do not leave their Nodes",
            least=4,
        ),
        fix="The cause is a disruption budget that allows nothing, a finalizer that no controller removes, "
        "or a grace period longer than SUNK_HOOKS_DEADLINE_S.",
    ),
    Rule(
        alert="SunkPrologsDrainNodes",
        bound=2,
        series=("sunk_drained_nodes", "slurm_nodes_total"),
        finds=prologs_drain,
        fix="Keep jobs from starting until it is fixed: scontrol update PartitionName=NAME State=DOWN "
        "(running jobs run on).",
    ),
    Rule(
        alert="SunkCertificateEnds",
        bound=0.1,
        series=_certificate("hook"),
        finds=certificate_ends("hook", "its certificate has {left} of its time left"),
        fix="Renew the certificate in the Secret, or take away what stops the Deployment "
        "<release>-certificates, which renews it with 30 days left.",
    ),
    Rule(
        alert="SunkNatsCertificateNotRenewed",
        bound=0.3,
        series=_certificate("nats"),
        finds=certificate_ends("nats", "NATS' certificate has {left} of its time left, and was not renewed"),
        fix="Take away what stops the renewal; the program tries again at its next start, at most five "
        "minutes later.",
    ),
    Rule(
        alert="SunkJobsHeldByLocks",
        series=("sunk_hook_refusals_total",),
        finds=rises_fast(
            *("sunk_hook_refusals_total", HOUR_S),
            "{value:.0f} jobs were held because their nodes were not locked",
            answer="hold",
        ),
        fix="Do what SunkLocksRefused says.",
    ),
    Rule(
        alert="SunkPlacementWaitsLong",
        bound=3600,
        series=("sunk_placement_waiting_oldest_age_seconds",),
        finds=above("sunk_placement_waiting_oldest_age_seconds", "a Pod waits for Slurm for {age}"),
        fix="Slurm's priorities decide.",
    ),
    Rule(
        alert="SunkPlaceholderWithoutPod",
        series=("sunk_placement_stray_jobs_total",),
        finds=rises_fast(
            *("sunk_placement_stray_jobs_total", HOUR_S),
            "{value:.0f} placeholder jobs without a Pod were cancelled",
        ),
        fix="Do nothing if it happened once after a restart or a loss of the bus.",
    ),
    Rule(
        alert="SunkPodsWithoutJob",
        series=("sunk_placement_jobs_unknown_total",),
        finds=rises_fast(
            *("sunk_placement_jobs_unknown_total", HOUR_S),
            "Slurm has lost the jobs of {value:.0f} Pods",
            became="lost",
        ),
        fix="Bring back slurmctld's state (backup.md) if you have it: the Pods then have their old jobs "
        "again.",
    ),
    Rule(
        alert="SunkDrainOld",
        bound=3600,
        series=("sunk_drain_oldest_age_seconds",),
        finds=above(
            "sunk_drain_oldest_age_seconds",
            "the services have drained a node for {age}: {cause}",
            unless=("cause", "cordon", "pod pending deletion"),
            owner="kubernetes",
        ),
        fix="Fix the Pod.",
    ),
    Rule(
        alert="SunkDrainOutlivesCause",
        bound=300,
        series=("sunk_drain_without_cause_oldest_age_seconds",),
        finds=above(
            "sunk_drain_without_cause_oldest_age_seconds",
            "a drain by the services has outlived its cause by {age}: {cause}",
        ),
        fix="Fix what holds the syncer back.",
    ),
    Rule(
        alert="SunkNodeSetBlind",
        series=("sunk_nodeset_slurm_known", "sunk_leader"),
        finds=nodesets_without_slurm,
        fix="Bring back what is down.",
    ),
    Rule(
        alert="SunkJobSeriesCapped",
        series=("sunk_jobs_without_series",),
        finds=above("sunk_jobs_without_series", "{value:.0f} jobs have no series of their own"),
        fix="Raise the limit if Prometheus can hold more series.",
    ),
)
_ALL_CLUSTERS: Final = "the Kubernetes cluster"
SERIES: Final = frozenset(name for rule in RULES for name in rule.series) | {STARTED}
"""What the rules look at."""
_BOUND: Final = re.compile(r"[<>] ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?![0-9.])")


def symptoms(figures: Figures, bounds: Mapping[str, float]) -> list[Symptom]:
    """Return what is wrong, each once; *bounds* are those of the release, by alert."""
    found = [
        Symptom(
            runbook=rule.alert, what=text, where=point.pod or point.cluster or _ALL_CLUSTERS, fix=rule.fix
        )
        for rule in RULES
        for point, text in rule.finds(figures, bounds.get(rule.alert, rule.bound))
    ]
    return list(dict.fromkeys(found))


def bounds(rules: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the bounds in the *rules* of a PrometheusRule, of alerts that have one here."""
    return dict(_bounds(rules))


def _bounds(rules: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    known = {rule.alert for rule in RULES if rule.bound}
    for rule in rules:
        match = _BOUND.search(str(rule.get("expr", "")))
        if rule.get("alert") in known and match:
            yield str(rule["alert"]), float(match[1])
