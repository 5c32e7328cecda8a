"""The examples for other teams, on NATS servers that have the users of the chart."""

import re
import shlex
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import msgspec
import pytest
from anyio import to_thread
from nats.aio.client import Client

from sunk_events import subjects
from sunk_events.nodes import SlurmNodeState
from sunk_lab.charts import render
from sunk_lab.config import from_environment
from sunk_lab.kube import go
from sunk_lab.kube.certificates import Authority
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_ports
from sunk_lab.processes import Processes, run
from sunk_runtime.errors import PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
FACT: Final = ROOT / "tests/contract/golden/sunk.syncer.v1.node_drained.json"
STATE: Final = ROOT / "tests/contract/golden/sunk.syncer.v1.slurm_node.2.json"
EVENTS_PAGE: Final = ROOT / "docs/events.md"
NATSCLI: Final = "github.com/nats-io/natscli@v0.4.0"
NATSCLI_DIGEST: Final = "h1:TVNhf1cV1xKS21OknR/7jBvO1PP4yynRqI9Si31AEk8="
CONSUMED: Final = ("SUNK_EV_prod", "KV_SUNK_prod_slurm_node")
SUBJECT: Final = "sunk.ev.prod.slurm.node.gpu-000-012.drained"
USER: Final = "subscriber-billing"
PASSWORD: Final = "p1"  # noqa: S105 - of a server of this test alone.
VALUES: Final[dict[str, Any]] = {
    "clusters": [{"name": "prod", "namespace": "slurm"}],
    "nats": {"subscribers": ["billing"]},
}


@pytest.fixture
def servers(tmp_path: Path) -> Generator[tuple[NatsServer, NatsServer]]:
    """Give the services' server and that of other teams, with what the chart says of them."""
    made = render(helm.Chart.load(ROOT / "helm/sunk"), VALUES, name="sunk", namespace="sunk")
    port = free_ports(1)
    link = f'"nats-leaf://teams:{PASSWORD}@127.0.0.1:{port}"'

    def extra(config_map: str, key: str) -> str:
        conf = re.sub(r"\$PASSWORD_\w+", PASSWORD, str(made["ConfigMap", config_map]["data"][key]))
        conf = conf.replace("0.0.0.0:7422", f"127.0.0.1:{port}").replace("$LINK", link)
        return conf[conf.index("leafnodes {") :]

    ours = NatsServer(tmp_path / "nats", extra=extra("sunk-nats", "one.conf"))
    theirs = NatsServer(tmp_path / "teams", domain="teams", extra=extra("sunk-nats-teams", "teams.conf"))
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def programs(tmp_path: Path) -> Generator[Processes]:
    """Give what is started, and end it whatever comes."""
    made = Processes(tmp_path / "subscriber")
    yield made
    for name in ("mirrors", "run-1", "run-2"):
        made.kill(name)


def test_the_common_case_takes_ten_lines() -> None:
    code = (EXAMPLES / "subscriber.py").read_text().partition('"""\n\n')[2]

    assert len([line for line in code.splitlines() if line]) <= 10


@pytest.mark.anyio
async def test_another_team_may_tell_nothing(servers: tuple[NatsServer, NatsServer]) -> None:
    _, theirs = servers
    billing, denied = Client(), list[Exception]()

    async def note(error: Exception) -> None:
        denied.append(error)

    await billing.connect(theirs.url, user=USER, password=PASSWORD, error_cb=note)
    try:
        await billing.publish(SUBJECT, b"{}")
        await billing.flush()
        await until(lambda: bool(denied))
    finally:
        await billing.close()
    assert "permissions violation" in str(denied[0]).lower()


Start = Callable[[str, Path], list[str | Path]]
"""Returns what starts a subscriber at the address of NATS, in a folder that has the password."""


def in_python(url: str, folder: Path) -> list[str | Path]:
    return [sys.executable, EXAMPLES / "subscriber.py", url, "prod", USER, folder / "password"]


def with_a_ledger(url: str, folder: Path) -> list[str | Path]:
    program = EXAMPLES / "durable_subscriber.py"
    return [sys.executable, program, url, "prod", USER, folder / "password", folder / "drains.db"]


def in_go(url: str, folder: Path) -> list[str | Path]:
    settings = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    compiler = go.find(from_environment().cache, report=print)
    run(compiler, "build", "-o", folder / "go", ".", cwd=EXAMPLES / "go", env=settings, timeout_s=600)
    return [folder / "go", url, "prod", USER]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(in_python, id="Python"),
        pytest.param(with_a_ledger, id="a ledger"),
        pytest.param(in_go, id="Go", marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)
async def test_a_subscriber_hears_what_happened_while_it_was_away(
    servers: tuple[NatsServer, NatsServer], tmp_path: Path, programs: Processes, start: Start
) -> None:
    ours, theirs = servers
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    mirror = {"SUNK_MIRROR_URL": theirs.url, "SUNK_MIRROR_USER": "keeper", "SUNK_MIRROR_LOOK_S": "0.2"}
    mirror |= {"SUNK_MIRROR_CLUSTERS": "prod", "SUNK_MIRROR_PASSWORD_FILE": str(password)}
    as_team = {"NATS_URL": theirs.url, "NATS_USER": USER, "NATS_PASSWORD": PASSWORD}
    command = start(theirs.url, tmp_path)
    programs.spawn("mirrors", [sys.executable, "-m", "sunk_runtime.mirroring"], env=mirror)

    admin = BusSettings(url=ours.url, user="admin", password_file=password)
    async with connect(admin, "test") as bus:
        await bus.provision("prod", admin)
        await until(lambda: "SUNK_EV_prod" in programs.log_of("mirrors").read_text())
        for number in (1, 2):  # It hears the first, is killed, and hears the second when it is back.
            told = FACT.read_bytes().replace(b":1718", f":{number}".encode())
            await bus.publish(SUBJECT, told.replace(b"/lab/syncer", b"/prod/syncer"))
            programs.spawn(f"run-{number}", command, env=as_team)
            log = programs.log_of(f"run-{number}")

            def is_told(number: int = number, log: Path = log) -> bool:
                programs.require(f"run-{number}")
                return log.read_text().count("gpu-000-012") >= 1

            await until(is_told)
            await until(lambda: is_acknowledged(theirs, password))
            programs.kill(f"run-{number}")
    if start is with_a_ledger:
        with closing(sqlite3.connect(tmp_path / "drains.db")) as drains:
            assert drains.execute("SELECT node, count FROM drains").fetchall() == [("gpu-000-012", 2)]
    else:
        assert "gpu-000-012:2" in programs.log_of("run-2").read_text()
        assert "gpu-000-012:1" not in programs.log_of("run-2").read_text()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(in_python, id="Python"),
        pytest.param(with_a_ledger, id="a ledger"),
        pytest.param(in_go, id="Go", marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)
async def test_a_subscriber_that_knows_the_authority_hears_by_tls(
    tmp_path: Path, programs: Processes, start: Start
) -> None:
    made = Authority(tmp_path / "authority")
    made.found()
    made.issue("server", "server", names="IP:127.0.0.1")
    files = f'cert_file: "{made.crt("server")}", key_file: "{made.key("server")}"'
    (tmp_path / "password").write_text(PASSWORD)
    with NatsServer(tmp_path / "nats", extra=f"tls {{ {files}, timeout: 60 }}\n") as server:
        settings = BusSettings(url=server.url, ca_file=made.crt())
        async with connect(settings, "test") as bus:
            await bus.provision("prod", settings)
            await bus.publish(SUBJECT, FACT.read_bytes().replace(b"/lab/syncer", b"/prod/syncer"))
            as_team = {"NATS_PASSWORD": PASSWORD}
            programs.spawn("run-1", [*start(server.url, tmp_path), made.crt()], env=as_team)

            def is_told() -> bool:
                programs.require("run-1")
                return "gpu-000-012" in programs.log_of("run-1").read_text()

            await until(is_told)


def shell_lines() -> list[list[str]]:
    """Return the words of each command in the page's example for a shell, of the cluster ``prod``."""
    block = EVENTS_PAGE.read_text().partition("```sh\n")[2].partition("```")[0]
    found = [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]
    return [[re.sub(r"(?<=[._])lab(?=[._]|$)", "prod", word) for word in words] for words in found]


def nats_command(folder: Path) -> Path:
    """Return the command ``nats``, compiled in *folder*."""
    compiler = go.find(from_environment().cache, report=print)
    source = go.source(compiler, NATSCLI, NATSCLI_DIGEST, folder)
    go.compiled(compiler, source, "./nats", folder / "nats-command")
    return folder / "nats-command"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.anyio
async def test_each_line_of_the_page_for_a_shell_works_as_another_teams_user(
    servers: tuple[NatsServer, NatsServer], tmp_path: Path, programs: Processes
) -> None:
    ours, theirs = servers
    (nats, *_), *_ = lines = shell_lines()
    follow = [words for words in lines if words[1] == "sub"]
    command = nats_command(tmp_path)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    mirror = {"SUNK_MIRROR_URL": theirs.url, "SUNK_MIRROR_USER": "keeper", "SUNK_MIRROR_LOOK_S": "0.2"}
    mirror |= {"SUNK_MIRROR_CLUSTERS": "prod", "SUNK_MIRROR_PASSWORD_FILE": str(password)}
    as_team = {"NATS_URL": theirs.url, "NATS_USER": USER, "NATS_PASSWORD": PASSWORD, "HOME": str(tmp_path)}

    def words_of(line: list[str]) -> list[str | Path]:
        return [command, "--inbox-prefix", f"_INBOX.{USER}", *line[1:]]

    programs.spawn("mirrors", [sys.executable, "-m", "sunk_runtime.mirroring"], env=mirror)
    admin = BusSettings(url=ours.url, user="admin", password_file=password)
    async with connect(admin, "test") as bus:
        await bus.provision("prod", admin)
        bucket = subjects.bucket("prod", SlurmNodeState)
        await bus.publish(subjects.key_subject(bucket, "gpu-000-012"), STATE.read_bytes())
        for number, line in enumerate(follow, 1):
            programs.spawn(f"run-{number}", words_of(line), env=as_team)

        async def are_printed() -> bool:
            await bus.publish(SUBJECT, FACT.read_bytes())
            for number in range(1, len(follow) + 1):
                programs.require(f"run-{number}")
            logs = [programs.log_of(f"run-{number}").read_text() for number in range(1, len(follow) + 1)]
            return all("gpu-000-012" in log for log in logs)

        await until(are_printed)
        as_user = BusSettings(url=theirs.url, user=USER, password_file=password)
        async with connect(as_user, "subscriber") as other:
            await until(lambda: has_messages(other, CONSUMED))
        done = {
            " ".join(line): await to_thread.run_sync(partial(run, *words_of(line), env=as_team))
            for line in lines
            if line not in follow
        }
    async with connect(as_user, "subscriber") as other:
        made = [await other.js.consumer_info(stream, USER) for stream in CONSUMED]

    assert [line[:3] for line in lines] == [
        *([nats, "sub", "sunk.ev.>"], [nats, "sub", "sunk.ev.prod.slurm.node.*.drained"]),
        *([nats, "consumer", "add"], [nats, "kv", "get"], [nats, "consumer", "add"]),
    ]
    (state,) = (text for words, text in done.items() if " kv get " in words)
    assert msgspec.json.decode(state) == msgspec.json.decode(STATE.read_bytes())
    facts, states = (one.config for one in made)
    assert (facts.ack_policy, facts.deliver_policy) == ("explicit", "all")
    assert (states.ack_policy, states.deliver_policy) == ("none", "last_per_subject")
    assert states.filter_subject == f"$KV.{bucket}.>"


async def has_messages(bus: Bus, streams: Iterable[str]) -> bool:
    """Whether the keeper has mirrored each of *streams*, and something in it."""
    try:
        return all([(await bus.js.stream_info(stream)).state.messages for stream in streams])
    except PermanentError:  # There is none yet.
        return False


async def is_acknowledged(server: NatsServer, password: Path) -> bool:
    settings = BusSettings(url=server.url, user=USER, password_file=password)
    async with connect(settings, "subscriber") as other:
        with pytest.raises(PermanentError, match="denies"):
            await other.js.consumer_info("SUNK_EV_prod", "metrics-exporter-facts")
        return not (await other.js.consumer_info("SUNK_EV_prod", USER)).num_ack_pending
