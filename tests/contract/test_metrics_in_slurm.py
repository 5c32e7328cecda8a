"""Each documented metric of a real cluster says what sinfo, squeue, scontrol and sdiag say at that moment."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm
from sunk_metrics_exporter.slurm_metrics.table import TABLE
from sunk_metrics_exporter.testing import slurm_tools
from sunk_metrics_exporter.testing.exporter import Process, Samples
from sunk_metrics_exporter.testing.prometheus import Prometheus
from sunk_runtime.testing import WITHIN_S
from sunk_syncer.testing.process import SyncerProcess

pytestmark = pytest.mark.lab

NODES = NodeRange(count=11, first_port=0, gpus=4, gpu_types=("h100", "a100"))
MORE = (
    "ReturnToService=0",  # Whoever is down stays down.
    "Epilog=/lab/etc/epilog.sh",
    f"PartitionName=low Nodes={NODES.names_expression} PriorityTier=1 MaxTime=INFINITE",
    f"PartitionName=high Nodes={NODES.names_expression} PriorityTier=10 MaxTime=INFINITE",
    "PartitionName=spare",
)
EPILOG = """#!/bin/bash
while [ "$SLURMD_NODENAME" = node07 ]; do sleep 1; done
"""
ODD_NAME = 'a "b"\\c, {d="e"} \u00e4'


@dataclass
class Cluster:
    """A cluster in which there is something of everything, and what tells of it."""

    slurm: HostSlurm
    syncer: SyncerProcess
    http: httpx.Client
    url: str

    def submit(self, *options: str, run: str = "sleep 600") -> str:
        argv = ("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", f"--wrap={run}", *options)
        return self.slurm.exec(*argv).strip()

    def scrape(self) -> Samples:
        text = self.http.get("/metrics").raise_for_status().text
        samples: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name if sample.name in NAMES else sample.name.removesuffix("_total")
                samples.setdefault(name, {})[tuple(sample.labels.values())] = sample.value
        return samples

    def states(self) -> set[str]:
        return set(self.slurm.exec("squeue", "-h", "-t", "all", "-o", "%T").split())


WORDS = {"mixed", "allocated", "drained", "draining", "down", "completing", "reserved", "maint"}
REFUSED = 'sum({__name__=~"prometheus_target_scrapes_(sample|exceeded).*_total"})'
LEFT_OUT = 'scrape_samples_scraped{job="sunk"} - scrape_samples_post_metric_relabeling'
ROOT = Path(__file__).parents[2]
NAMES = {series.name for series in TABLE}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("metrics")
    with (
        running_slurm(request.param, nodes=NODES, more=MORE, prolog_epilog_timeout_s=3600) as slurm,
        NatsServer(folder / "nats") as nats,
    ):
        port = free_port()
        about = {"cluster": "lab", "nats_url": nats.url, "slurm_url": slurm.url, "poll_s": "0.3"}
        more = {"slurm_key_file": str(slurm.jwt_key), "statistics_s": "0.5", "job_refresh_s": "2"}
        syncer = SyncerProcess(folder, **about, **more, quiet_max_s="2", job_refresh_rate="50")
        syncer.start()
        exporter = Process(folder, {"CLUSTER": "lab", "NATS_URL": nats.url, "HTTP_PORT": str(port)})
        url = f"http://127.0.0.1:{port}"
        try:
            with httpx.Client(base_url=url, trust_env=False, timeout=120) as http:
                found = Cluster(slurm, syncer, http, url)
                fill(found)
                eventually(lambda: [] if is_ready(http) else ["the exporter is not ready"])
                # It is ready with an empty bus, too: the syncer may not have listed anything yet.
                eventually(lambda: sorted(NAMES - found.scrape().keys()))
                yield found
        finally:
            exporter.close()
            syncer.close()


def is_ready(http: httpx.Client, path: str = "/readyz") -> bool:
    try:
        return http.get(path).is_success
    except httpx.TransportError:
        return False


def eventually(differences: Callable[[], list[str]]) -> None:
    """Compare until nothing differs: what is on its way may take its time."""
    end = time.monotonic() + WITHIN_S
    while found := differences():
        assert time.monotonic() < end, "\n".join(found)
        time.sleep(0.2)


def fill(cluster: Cluster) -> None:
    """Bring nodes and jobs into every state that the table has a name for."""
    slurm, submit = cluster.slurm, cluster.submit
    slurm.write_file("epilog.sh", EPILOG)
    late = submit("--nodelist=node01", "--time=1")
    submit("--nodelist=node01", "--gres=gpu:h100:1")
    submit("--nodelist=node01", "--array=1-2")
    submit("--nodelist=node02", "--ntasks=4", "--gres=gpu:4", "--uid=sunk", f"--job-name={ODD_NAME}")
    submit("--nodelist=node04")
    submit("--nodelist=node05", run="exit 3")
    submit("--nodelist=node05", run="true")
    halted = submit("--nodelist=node06")
    ending = submit("--nodelist=node07")
    submit("--nodelist=node08", "--no-requeue")
    submit("--nodelist=node09", "--partition=low", "--exclusive", "--no-requeue")
    submit("--nodes=2", "--nodelist=node[02-03]", "--ntasks-per-node=1", "--gres=gpu:1", "--time=9")
    array = submit("--hold", "--array=1-10", run="true")
    submit(f"--dependency=afterok:{array}", run="true")
    slurm.exec("scancel", submit("--hold"))
    slurm.exec("scancel", f"{array}_3")

    def unstarted() -> list[str]:
        rows = slurm.exec("squeue", "-h", "-o", "%i %T %R", "--nodelist=node01,node[04-09]").splitlines()
        are_running = len(rows) == 9 and all("RUNNING" in row for row in rows)
        return [] if are_running else [f"{len(rows)} of 9 jobs have nodes", *rows]

    eventually(unstarted)
    submit("--nodelist=node09", "--partition=high", "--exclusive")
    slurm.exec("scancel", ending)
    slurm.exec("scontrol", "suspend", halted)
    slurm.exec("scontrol", "update", "nodename=node[03-04]", "state=drain", "reason=looked at")
    slurm.exec("scontrol", "update", "nodename=node[05,08]", "state=down", "reason=by hand")
    slurm.kill_daemon("node08")
    for node, flags in (("node10", "IGNORE_JOBS"), ("node11", "MAINT,IGNORE_JOBS")):
        about = ("StartTime=now", "Duration=60", "Users=root", f"Nodes={node}", f"Flags={flags}")
        slurm.exec("scontrol", "create", "reservation", f"ReservationName={node}", *about)
    slurm.exec("scontrol", "update", f"jobid={late}", "EndTime=now")
    wanted = {"NODE_FAIL", "PREEMPTED", "COMPLETING", "SUSPENDED"}
    eventually(lambda: sorted(wanted - cluster.states()))


def told_otherwise(cluster: Cluster, said: Callable[[], Samples]) -> list[str]:
    """Return where a scrape differs from what Slurm's tools say just before and just after it."""
    before = said()
    scraped = cluster.scrape()
    if (after := said()) != before:
        return [f"Slurm itself changes: {name}" for name in before if before[name] != after.get(name)]
    return [
        f"{name}{labels}: scraped {scraped.get(name, {}).get(labels)}, Slurm says {found.get(labels)}"
        for name, found in before.items()
        for labels in sorted({*found, *scraped.get(name, {})})
        if found.get(labels) != scraped.get(name, {}).get(labels)
    ]


def said_of_nodes(cluster: Cluster) -> Samples:
    partitions = cluster.slurm.exec("sinfo", "--noheader", "--all", "--format=%R").split()
    return slurm_tools.nodes(cluster.slurm.exec(*slurm_tools.sinfo()), sorted(set(partitions)))


def test_nodes_and_partitions_are_what_sinfo_says(cluster: Cluster) -> None:
    def unsaid() -> list[str]:
        return sorted(WORDS - {labels[2] for labels in said_of_nodes(cluster)["slurm_node_state"]})

    eventually(unsaid)  # slurmctld takes a while to say that a reservation has begun.
    eventually(lambda: told_otherwise(cluster, lambda: said_of_nodes(cluster)))


def said_of_jobs(cluster: Cluster) -> Samples:
    listed, shown = (cluster.slurm.exec(*command) for command in (slurm_tools.SQUEUE, slurm_tools.SHOW_JOBS))
    return slurm_tools.jobs(listed, shown)


def test_jobs_are_what_squeue_and_scontrol_say(cluster: Cluster) -> None:
    eventually(lambda: told_otherwise(cluster, lambda: said_of_jobs(cluster)))
    said = said_of_jobs(cluster)
    words = {labels[5] for labels in said["slurm_job_state"]}
    assert words >= {"pending", "running", "completed", "failed", "cancelled", "preempted", "suspended"}
    assert words >= {"completing", "node_fail"}
    assert ODD_NAME in {labels[4] for labels in said["slurm_job_state"]}
    assert said["slurm_queue_pending_dependency"] == {(): 1}
    assert sum(said["slurm_job_gpus_allocated"].values()) > 0


def test_the_time_of_a_job_runs_from_its_start(cluster: Cluster) -> None:
    rows = cluster.slurm.exec("squeue", "-h", "-t", "running", "-o", "%A %S %N").splitlines()
    began = {number: (start, node) for number, start, node in (row.split() for row in rows)}
    before = datetime.now(UTC)
    uptimes = {labels[3]: value for labels, value in cluster.scrape()["slurm_job_uptime_seconds"].items()}
    after = datetime.now(UTC)

    assert began.keys() & uptimes.keys()
    for number in began.keys() & uptimes.keys():
        start = datetime.fromisoformat(began[number][0]).replace(tzinfo=UTC)
        assert (before - start).total_seconds() - 1 <= uptimes[number] <= (after - start).total_seconds()


def test_the_scheduler_is_what_sdiag_says(cluster: Cluster) -> None:
    def differences() -> list[str]:
        before = cluster.slurm.exec(*slurm_tools.SDIAG)
        count = slurm_tools.rpcs(before).get("REQUEST_STATS_INFO", (0, 0.0))[0]
        eventually(lambda: [] if rpc_count(cluster, "REQUEST_STATS_INFO") > count else ["no news of sdiag"])
        scraped = cluster.scrape()
        after = cluster.slurm.exec(*slurm_tools.SDIAG)
        low, high = slurm_tools.scheduler(before), slurm_tools.scheduler(after)
        found = [
            f"{name}: scraped {scraped[name][()]}, sdiag {low[name]} and then {high[name]}"
            for name in low
            if not min(low[name], high[name]) - 1e-9 <= scraped[name][()] <= max(low[name], high[name]) + 1e-9
        ]
        first, last = slurm_tools.rpcs(before), slurm_tools.rpcs(after)
        counts = scraped["slurm_controller_rpc_count"]
        means = scraped["slurm_controller_rpc_mean_duration_seconds"]
        found += [
            f"{kind}: scraped {counts[kind,]}, sdiag {number} and then {last[kind][0]}"
            for kind, (number, _) in first.items()
            if not number <= counts[kind,] <= last[kind][0]
        ]
        still = {kind: mean for kind, (number, mean) in first.items() if last[kind][0] == number}
        return found + [
            f"{kind}: {means[kind,]} s, not {mean}"
            for kind, mean in still.items()
            if means[kind,] != pytest.approx(mean)
        ]

    eventually(differences)


def test_no_documented_metric_is_left_uncompared(cluster: Cluster) -> None:
    of_scheduler = slurm_tools.scheduler(cluster.slurm.exec(*slurm_tools.SDIAG))
    of_rpcs = {"slurm_controller_rpc_count", "slurm_controller_rpc_mean_duration_seconds"}

    compared = said_of_nodes(cluster).keys() | said_of_jobs(cluster).keys() | of_scheduler.keys() | of_rpcs

    assert NAMES - compared == {"slurm_job_uptime_seconds"}  # It goes on: it has a test of its own.


def rpc_count(cluster: Cluster, kind: str) -> float:
    return cluster.scrape()["slurm_controller_rpc_count"].get((kind,), 0)


def test_a_job_that_ran_out_of_time_is_counted_so(cluster: Cluster) -> None:
    eventually(lambda: sorted({"TIMEOUT"} - cluster.states()))
    eventually(lambda: told_otherwise(cluster, lambda: said_of_jobs(cluster)))
    assert said_of_jobs(cluster)["slurm_queue_timeout"] == {(): 1}


def queries() -> dict[str, str]:
    """Return what the panels of all dashboards ask, by title, for the one cluster there is."""
    found: dict[str, str] = {}
    for path in (ROOT / "helm" / "sunk" / "files" / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            found[panel["title"]] = panel["targets"][0]["expr"].replace("$cluster", "lab")
    return found


def test_prometheus_takes_every_series_and_answers_every_panel(
    cluster: Cluster, prometheus: Path, tmp_path: Path
) -> None:
    target = cluster.url.removeprefix("http://")
    server = Prometheus(tmp_path / "prometheus", str(prometheus), [target], "lab")
    with httpx.Client(base_url=server.url, trust_env=False, timeout=120) as http:

        def ask(query: str) -> list[Any]:  # Any: Prometheus' own JSON
            answer = http.get("/api/v1/query", params={"query": query})
            return answer.raise_for_status().json()["data"]["result"]

        def missing() -> list[str]:
            if not is_ready(http, "/-/ready"):
                return ["Prometheus is not up"]
            return sorted(NAMES - {one["metric"]["__name__"] for one in ask('{__name__=~"slurm_.+"}')})

        def silent() -> list[str]:  # A scrape that takes longer than it may silences all for a moment.
            asked = {title: query for title, query in queries().items() if not re.search("rate|sunk_", query)}
            return sorted(title for title, query in asked.items() if not ask(query))

        try:
            eventually(missing)
            eventually(lambda: [] if ask(REFUSED) else ["Prometheus has not scraped itself"])
            refused, left_out = ask(REFUSED), ask(LEFT_OUT)
            eventually(silent)
        finally:
            server.close()

    assert [one["value"][1] for one in (*refused, *left_out)] == ["0", "0"]


def test_a_scrape_asks_slurm_nothing(cluster: Cluster) -> None:
    cluster.syncer.kill()
    try:
        before = questions_at_rest(cluster)
        for _ in range(20):
            assert "slurm_nodes_total" in cluster.scrape()
        after = questions(cluster)
    finally:
        cluster.syncer.start()

    assert after == before


def questions_at_rest(cluster: Cluster) -> dict[str, int]:
    """Return `questions` once two looks see the same: slurmrestd may still have one of the syncer in hand."""
    seen = [questions(cluster)]

    def changes() -> list[str]:
        time.sleep(1)
        seen.append(questions(cluster))
        return [] if seen[-1] == seen[-2] else [f"slurmctld is still asked: {seen[-2]}, then {seen[-1]}"]

    eventually(changes)
    return seen[-1]


def questions(cluster: Cluster) -> dict[str, int]:
    """Return how often slurmctld was asked for what, our own sdiag left out."""
    counts = slurm_tools.rpcs(cluster.slurm.exec(*slurm_tools.SDIAG))
    asked = {kind: number for kind, (number, _) in counts.items() if re.search("INFO|STATE|PING", kind)}
    return {kind: number for kind, number in asked.items() if kind != "REQUEST_STATS_INFO"}
