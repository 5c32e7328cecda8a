"""Scrapes of a real exporter on a real nats-server."""
# pyright: reportUnknownVariableType=false

import math
import re
import signal
import socket
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute
from msgspec import structs
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from sunk_events import subjects
from sunk_events.base import State, event_id
from sunk_events.codec import encode
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockLocked, LockSnapshot
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_metrics_exporter.slurm_metrics.ages import KINDS
from sunk_metrics_exporter.testing.exporter import Process
from sunk_runtime.clock import now
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.writer import publish

pytestmark = pytest.mark.anyio

CLUSTER = "c1"


@pytest.fixture
def server(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncGenerator[Bus]:
    settings = BusSettings(url=server.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        yield bus


@asynccontextmanager
async def exporting(server: NatsServer, folder: Path) -> AsyncGenerator[tuple[Process, httpx.AsyncClient]]:
    port = free_port()
    process = Process(
        folder, {"CLUSTER": CLUSTER, "NATS_URL": server.url, "HTTP_PORT": str(port), "STALE_S": "600"}
    )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=WITHIN_S
        ) as client:
            await until(lambda: _is_ready(client))
            yield process, client
    finally:
        process.close()


@pytest.fixture
async def http(server: NatsServer, tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with exporting(server, tmp_path) as (_, client):
        yield client


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).is_success
    except httpx.TransportError:
        return False


async def store(bus: Bus, key: str, state: State) -> None:
    bucket = subjects.bucket(CLUSTER, type(state))
    await bus.publish(subjects.key_subject(bucket, key), encode(state))


async def get(http: httpx.AsyncClient, headers: dict[str, str] | None = None) -> httpx.Response:
    """Scrape; one that loses sight of the bus for a moment, on a busy machine, is asked again."""
    answers: list[httpx.Response] = []

    async def is_answered() -> bool:
        answers.append(await http.get("/metrics", headers=headers))
        assert answers[-1].status_code in {200, 503}, answers[-1].text
        return answers[-1].is_success

    await until(is_answered)
    return answers[-1]


async def scrape(http: httpx.AsyncClient) -> str:
    return (await get(http)).text


def ages(text: str) -> dict[str, float]:
    found = re.findall(r'^sunk_state_age_seconds\{kind="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {kind: float(age) for kind, age in found}


def has_slurm(text: str) -> bool:
    return any(line.startswith("slurm_") for line in text.splitlines())


async def test_a_scrape_tells_what_the_bus_knows_and_follows_it(bus: Bus, http: httpx.AsyncClient) -> None:
    drained = SlurmNodeState(
        changed=now(), node="gpu-1", state="IDLE", flags=("DRAIN",), is_drain=True, partitions=("gpu",)
    )
    await store(bus, "gpu-1", drained)

    async def is_told() -> bool:
        return 'slurm_node_state{node="gpu-1",partition="gpu",state="drained"} 1' in await scrape(http)

    await until(is_told)
    text = await scrape(http)
    assert "slurm_nodes_drain 1" in text
    assert "process_cpu_seconds_total" in text


async def test_before_slurm_was_heard_of_no_scrape_shows_an_empty_cluster(http: httpx.AsyncClient) -> None:
    text = await scrape(http)

    assert not has_slurm(text)
    assert ages(text) == dict.fromkeys(KINDS, math.inf)


async def test_state_that_stands_still_is_left_out_and_its_age_is_told(
    bus: Bus, http: httpx.AsyncClient
) -> None:
    old = now() - timedelta(hours=1)
    await store(bus, "gpu-1", SlurmNodeState(changed=old, node="gpu-1", state="IDLE"))

    async def is_known() -> bool:
        return 3600 <= ages(await scrape(http))["nodes"] < 7200

    await until(is_known)
    assert not has_slurm(await scrape(http))

    await store(bus, subjects.STATISTICS_KEY, SlurmStatisticsState(changed=now()))

    async def is_back() -> bool:
        return "slurm_nodes_total 1" in await scrape(http)

    await until(is_back)


async def test_nodes_go_on_when_jobs_stand_still_and_their_ages_tell_them_apart(
    bus: Bus, http: httpx.AsyncClient
) -> None:
    await store(bus, "gpu-1", SlurmNodeState(changed=now(), node="gpu-1", state="IDLE"))
    long_ago = now() - timedelta(hours=1)
    statistics = SlurmStatisticsState(
        changed=now(), nodes_answered=now(), jobs_answered=long_ago, partitions_answered=now()
    )
    await store(bus, subjects.STATISTICS_KEY, statistics)

    async def is_told() -> bool:
        text = await scrape(http)
        return (
            "slurm_nodes_total 1" in text
            and "slurm_scheduler_queue" in text
            and "slurm_queue_pending" not in text
            and ages(text)["jobs"] >= 3600 > ages(text)["nodes"]
        )

    await until(is_told)


async def test_without_the_bus_a_scrape_fails_rather_than_shows_nothing(
    server: NatsServer, http: httpx.AsyncClient
) -> None:
    server.kill()

    async def is_refused() -> bool:
        return (await http.get("/metrics")).status_code == 503

    await until(is_refused)


async def missing(http: httpx.AsyncClient) -> list[str]:
    return (await http.get("/readyz")).json()["missing"]


async def is_leading(http: httpx.AsyncClient) -> bool:
    """Whether the replica observes what takes its time: one of them does."""
    return re.search(r'^sunk_leader\{lease="[^"]+"\} 1\.0$', await scrape(http), re.MULTILINE) is not None


async def test_without_the_bus_an_exporter_is_not_ready_and_says_what_it_lacks(
    server: NatsServer, http: httpx.AsyncClient
) -> None:
    await until(lambda: is_leading(http))
    lacked = set[str]()
    server.kill()

    async def has_lacked_all() -> bool:
        lacked.update(await missing(http))
        return len(lacked) == 8  # Seven views, and what it counts until its lease has run out.

    await until(has_lacked_all)
    assert "facts" in lacked
    server.start()

    async def lacks_nothing() -> bool:
        return await missing(http) == []

    await until(lacks_nothing)


def locked_fact(number: int) -> LockLocked:
    return LockLocked(
        id=event_id("lock_locked", "gpu-1", number),
        source=f"/{CLUSTER}/test",
        subject="gpu-1",
        time=now(),
        data=LockSnapshot(node="gpu-1", kube_node="node2", lock="locked", waited_s=0.2),
    )


async def counted(http: httpx.AsyncClient) -> int:
    for line in (await scrape(http)).splitlines():
        if line.startswith("sunk_facts_total{"):
            return int(float(line.split()[1]))
    return 0


async def test_two_exporters_count_each_fact_once_and_the_other_takes_over(
    server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    async with (
        exporting(server, tmp_path / "a") as (a, first),
        exporting(server, tmp_path / "b") as (_, second),
    ):
        for number in range(20):
            await publish(bus, CLUSTER, locked_fact(number))

        async def are_counted() -> bool:
            return sorted([await counted(first), await counted(second)]) == [0, 20]

        await until(are_counted)
        assert await counted(first) == 20  # It led before the other began.
        a.signal(signal.SIGTERM)
        assert a.wait() == 0
        for number in range(20, 30):
            await publish(bus, CLUSTER, locked_fact(number))

        async def are_counted_by_the_other() -> bool:
            return await counted(second) == 10

        await until(are_counted_by_the_other)


async def test_facts_are_counted_by_type_and_lock_times_observed(bus: Bus, http: httpx.AsyncClient) -> None:
    await publish(bus, CLUSTER, locked_fact(1))

    async def is_counted() -> bool:
        return (
            'sunk_facts_total{type="sunk.nodeset_controller.v1.lock_locked"} 1.0'
            in (text := await scrape(http))
            and "sunk_lock_pending_duration_seconds_sum 0.2" in text
        )

    await until(is_counted)


async def observed(http: httpx.AsyncClient) -> tuple[int, int]:
    """Return how many drains that ended, and jobs that started, a replica has observed."""
    text = await scrape(http)
    names = ("sunk_drain_duration_seconds_count", "sunk_job_wait_seconds_count")
    drains, waits = (re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE) for name in names)
    return sum(int(float(count)) for count in drains), sum(int(float(count)) for count in waits)


async def test_how_long_drains_lasted_and_jobs_waited_is_observed_by_one_of_two_replicas(
    bus: Bus, server: NatsServer, tmp_path: Path
) -> None:
    async with exporting(server, tmp_path) as (_, one):
        await until(lambda: is_leading(one))
        async with exporting(server, tmp_path / "other") as (_, other):
            assert not await is_leading(other)
            idle = SlurmNodeState(changed=now(), node="gpu-1", state="IDLE")
            drained = structs.replace(idle, is_drain=True, reason="k8s: cordon", reason_changed=now())
            await store(bus, "gpu-1", drained)

            async def have_seen(*parts: str) -> bool:
                texts = [await scrape(replica) for replica in (one, other)]
                return all(part in text for part in parts for text in texts)

            await until(lambda: have_seen("slurm_nodes_drain 1"))
            await store(bus, "gpu-1", idle)
            started = now()
            for number in (7, 8):
                job = SlurmJobState(
                    changed=started,
                    job=number,
                    state="RUNNING",
                    partition="gpu",
                    nodes="gpu-1",
                    submitted=started - timedelta(seconds=40),
                    started=started,
                )
                await store(bus, str(number), job)
            await until(lambda: have_seen("slurm_nodes_drain 0", "slurm_queue_running 2"))

            async def are_observed() -> bool:
                return await observed(one) == (1, 2)

            await until(are_observed)
            assert await observed(other) == (0, 0)


async def test_drains_and_waits_are_told_by_cause_and_partition(bus: Bus, http: httpx.AsyncClient) -> None:
    await until(lambda: is_leading(http))
    drained = SlurmNodeState(
        changed=now(), node="gpu-1", state="IDLE", is_drain=True, reason="k8s: cordon", reason_changed=now()
    )
    await store(bus, "gpu-1", drained)

    async def is_drained() -> bool:
        return 'sunk_drained_nodes{cause="cordon",owner="kubernetes"} 1.0' in await scrape(http)

    await until(is_drained)
    await store(bus, "gpu-1", SlurmNodeState(changed=now(), node="gpu-1", state="IDLE"))
    started = now()
    job = SlurmJobState(
        changed=started,
        job=7,
        state="RUNNING",
        partition="gpu",
        nodes="gpu-1",
        submitted=started - timedelta(seconds=40),
        started=started,
    )
    await store(bus, "7", job)

    async def is_told() -> bool:
        text = await scrape(http)
        return (
            'sunk_drain_duration_seconds_count{cause="cordon",owner="kubernetes"} 1.0' in text
            and 'sunk_job_wait_seconds_sum{partition="gpu"} 40.0' in text
            and "sunk_drained_nodes{" not in text
        )

    await until(is_told)


async def hang_up_half_way(http: httpx.AsyncClient) -> int:
    """Scrape, and reset the connection with most of the answer unread; return what was read."""
    host, port = http.base_url.host, http.base_url.port
    assert port is not None
    stream = await anyio.connect_tcp(host, port)
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no database
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.send(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    with anyio.fail_after(WITHIN_S):
        read = len(await stream.receive(1000))
    await anyio.aclose_forcefully(stream)
    return read


async def test_scrapes_that_hang_up_half_way_take_nothing_from_the_next(
    bus: Bus, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    jobs = 600
    for number in range(1, jobs + 1):  # Together more than the sockets between us hold.
        long = f"{number:04}" * 250
        job = SlurmJobState(
            changed=now(), job=number, state="PENDING", name=long, account=long, user=long, partition="p"
        )
        await store(bus, str(number), job)

    async def is_whole() -> bool:
        text = await scrape(http)
        return f"slurm_queue_pending {jobs}" in text and text.count("\nslurm_job_state{") == jobs

    await until(is_whole)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(hang_up_half_way, http)

    await until(is_whole)
    assert "Traceback" not in (tmp_path / "exporter.log").read_text()


async def test_scrapes_at_once_and_one_that_is_not_read_take_nothing_from_each_other(
    bus: Bus, http: httpx.AsyncClient
) -> None:
    await store(bus, "gpu-1", SlurmNodeState(changed=now(), node="gpu-1", state="IDLE"))

    async def is_told() -> bool:
        return "slurm_nodes_total 1" in await scrape(http)

    await until(is_told)
    async with http.stream("GET", "/metrics"):
        pass  # Gone before its last byte.
    answers: list[httpx.Response] = []

    async def ask(accept: str, encoding: str) -> None:
        headers = {"accept": accept, "accept-encoding": encoding}
        answers.append(await get(http, headers))

    async with anyio.create_task_group() as tasks:
        for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
            for encoding in ("gzip", "identity"):
                tasks.start_soon(ask, accept, encoding)
    assert sorted((a.headers["content-type"], a.headers.get("content-encoding", "")) for a in answers) == [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores", ""),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores", "gzip"),
        ("text/plain; version=0.0.4; charset=utf-8", ""),
        ("text/plain; version=0.0.4; charset=utf-8", "gzip"),
    ]
    for answer in answers:
        is_open = "openmetrics" in answer.headers["content-type"]
        families = [*(open_families if is_open else plain_families)(answer.text)]
        (total,) = [family for family in families if family.name == "slurm_nodes_total"]
        assert [sample.value for sample in total.samples] == [1]
        assert answer.text.endswith("# EOF\n") == is_open


def test_a_wrong_setting_ends_the_process_with_2_and_its_log_names_it(tmp_path: Path) -> None:
    process = Process(tmp_path, {"CLUSTER": "c1", "JOB_SERIES": "some"})

    assert process.wait() == 2
    assert "SUNK_METRICS_EXPORTER_JOB_SERIES='some'" in process.log.read_text()
