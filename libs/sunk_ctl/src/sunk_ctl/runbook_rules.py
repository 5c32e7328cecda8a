"""What is wrong with an installed SUNK, by the figures of its services and the rules of the alerts. Pure.

What must stay true: each alert of helm/sunk/files/alerts.yaml has a rule here, and what the tests of the
alerts show of an alert, they show of its rule.
"""

from typing import Final

import msgspec

from sunk_ctl.figures import STARTED, Figures
from sunk_ctl.symptoms import (
    HOUR_S,
    MINUTE_S,
    Finds,
    above,
    bus_full,
    calls_fail,
    certificate_ends,
    lists_are_old,
    no_exporter,
    no_leader,
    nodeset_blind,
    prologs_drain,
    risen,
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
    series: tuple[str, ...]
    finds: Finds
    fix: str


RULES: Final = (
    Rule(
        alert="SunkSlurmStateStale",
        series=("sunk_state_age_seconds",),
        finds=above("sunk_state_age_seconds", 120, "Slurm's {kind} on the bus are {age} old"),
        fix="See whether the syncer runs, slurmrestd answers it, and NATS takes what it writes.",
    ),
    Rule(
        alert="SunkSlurmListStale",
        series=("sunk_syncer_answered_timestamp_seconds",),
        finds=lists_are_old,
        fix="Give slurmrestd what it lacks, or raise SUNK_SYNCER_POLL_TIMEOUT_S.",
    ),
    Rule(
        alert="SunkExporterSilent",
        series=("sunk_state_age_seconds",),
        finds=no_exporter,
        fix="See why the Pods of the metrics-exporter are not ready.",
    ),
    Rule(
        alert="SunkNoLeader",
        series=("sunk_leader",),
        finds=no_leader,
        fix="Read the logs of its replicas: each says what it waits for.",
    ),
    Rule(
        alert="SunkBusSilent",
        series=("sunk_view_age_seconds",),
        finds=above("sunk_view_age_seconds", 60, "has not heard NATS for {age}"),
        fix="See whether NATS' Pods are ready, and whether a network policy is between.",
    ),
    Rule(
        alert="SunkBusFull",
        series=("sunk_bus_full", "sunk_publishes_failed_total"),
        finds=bus_full,
        fix="Give NATS a larger volume, or its streams higher limits.",
    ),
    Rule(
        alert="SunkClockOff",
        series=("sunk_clock_skew_seconds",),
        finds=above("sunk_clock_skew_seconds", 5, "its clock and that of NATS differ by {value:.0f} s"),
        fix="Put the clock of its Node, or of NATS' Node, right (NTP).",
    ),
    Rule(
        alert="SunkSlurmCallsFail",
        series=("sunk_slurm_call_duration_seconds_count",),
        finds=calls_fail,
        fix="Read the logs of slurmrestd and slurmctld; 401 means that the token or its key is another one.",
    ),
    Rule(
        alert="SunkSlurmRefuses",
        series=("sunk_syncer_refused_total",),
        finds=risen(
            "sunk_syncer_refused_total", 20, 15 * MINUTE_S, "Slurm refuses changes of its nodes: {action}"
        ),
        fix="The syncer's log has Slurm's answer and the node.",
    ),
    Rule(
        alert="SunkDeadLetters",
        series=("sunk_dead_letters_total",),
        finds=risen("sunk_dead_letters_total", 0, HOUR_S, "{value:.0f} messages were put aside: {reason}"),
        fix="`sunk-bus dead-letters` shows them.",
    ),
    Rule(
        alert="SunkFactsNotRead",
        series=("sunk_event_lag",),
        finds=above("sunk_event_lag", 1000, "{value:.0f} facts wait for {consumer}"),
        fix="See whether the program behind that consumer runs; remove the consumer if it is no longer used.",
    ),
    Rule(
        alert="SunkLockPendingLong",
        series=("sunk_lock_pending_oldest_age_seconds",),
        finds=above(
            "sunk_lock_pending_oldest_age_seconds", 600, "a Node's lock is pending for {age}: Pods stay on it"
        ),
        fix="`sunkctl locks` names the Pods in the way, `sunkctl explain node NODE` says why they stay.",
    ),
    Rule(
        alert="SunkLocksRefused",
        series=("sunk_hook_refusals_total",),
        finds=risen(
            "sunk_hook_refusals_total",
            3,
            15 * MINUTE_S,
            "{value:.0f} prologs were refused: Pods do not leave",
        ),
        fix="`sunkctl events` shows which Pods stayed on which Node.",
    ),
    Rule(
        alert="SunkPrologsDrainNodes",
        series=("sunk_drained_nodes", "slurm_nodes_total"),
        finds=prologs_drain,
        fix="See whether nodes reach the hook gateway, and trust its certificate and their token.",
    ),
    Rule(
        alert="SunkCertificateEnds",
        series=tuple(f"sunk_hook_certificate_{end}_timestamp_seconds" for end in ("start", "end")),
        finds=certificate_ends(
            "hook", 0.1, "its certificate has {left} of its time left; after it each prolog drains its node"
        ),
        fix="Renew the Secret of the gateway's certificate.",
    ),
    Rule(
        alert="SunkNatsCertificateNotRenewed",
        series=tuple(f"sunk_nats_certificate_{end}_timestamp_seconds" for end in ("start", "end")),
        finds=certificate_ends(
            "nats", 0.3, "NATS' certificate has {left} of its time left and was not renewed"
        ),
        fix="Read the log of the CronJob or of the program that renews it.",
    ),
    Rule(
        alert="SunkJobsHeldByLocks",
        series=("sunk_hook_refusals_total",),
        finds=risen(
            "sunk_hook_refusals_total",
            0,
            HOUR_S,
            "{value:.0f} jobs were held because their nodes were not locked",
            told="hold",
        ),
        fix="The syncer releases them; `sunkctl locks` names the Pods that stay.",
    ),
    Rule(
        alert="SunkPlacementWaitsLong",
        series=("sunk_placement_waiting_oldest_age_seconds",),
        finds=above("sunk_placement_waiting_oldest_age_seconds", 3600, "a Pod waits for Slurm for {age}"),
        fix="`sunkctl pods -A` names it, `sunkctl explain pod NAMESPACE/NAME` says why.",
    ),
    Rule(
        alert="SunkPlaceholderWithoutPod",
        series=("sunk_placement_stray_jobs_total",),
        finds=risen(
            "sunk_placement_stray_jobs_total", 0, HOUR_S, "{value:.0f} placeholder jobs had no Pod: cancelled"
        ),
        fix="Nothing to do for one; if it goes on, see whether two schedulers share one name.",
    ),
    Rule(
        alert="SunkPodsWithoutJob",
        series=("sunk_placement_jobs_unknown_total",),
        finds=risen(
            "sunk_placement_jobs_unknown_total",
            0,
            HOUR_S,
            "Slurm has lost the jobs of {value:.0f} Pods",
            became="lost",
        ),
        fix="See whether slurmctld has lost its state (StateSaveLocation).",
    ),
    Rule(
        alert="SunkDrainOld",
        series=("sunk_drain_oldest_age_seconds",),
        finds=above(
            "sunk_drain_oldest_age_seconds",
            3600,
            "a node is drained by the services for {age}: {cause}",
            unless=("cause", "cordon"),
            owner="kubernetes",
        ),
        fix="`sunkctl nodes` names it, `sunkctl explain node NODE` says what would lift the drain.",
    ),
    Rule(
        alert="SunkDrainOutlivesCause",
        series=("sunk_drain_without_cause_oldest_age_seconds",),
        finds=above(
            "sunk_drain_without_cause_oldest_age_seconds",
            300,
            "a drain by the services has outlived its cause by {age}: {cause}",
        ),
        fix="See SunkSlurmRefuses; else lift it: scontrol update nodename=NODE state=resume.",
    ),
    Rule(
        alert="SunkNodeSetBlind",
        series=("sunk_nodeset_slurm_known", "sunk_leader"),
        finds=nodeset_blind,
        fix="Its condition SlurmKnown says which: NATS, the syncer, or a slurmctld without its state.",
    ),
    Rule(
        alert="SunkJobSeriesCapped",
        series=("sunk_jobs_without_series",),
        finds=above("sunk_jobs_without_series", 0, "{value:.0f} jobs have no series of their own"),
        fix="Raise the exporter's limit, if Prometheus can hold more.",
    ),
)
SERIES: Final = frozenset(name for rule in RULES for name in rule.series) | {STARTED}
"""What the rules look at."""


def symptoms(figures: Figures) -> list[Symptom]:
    """Return what is wrong, each once."""
    found = [
        Symptom(runbook=rule.alert, what=text, where=point.pod or point.cluster, fix=rule.fix)
        for rule in RULES
        for point, text in rule.finds(figures)
    ]
    return list(dict.fromkeys(found))
