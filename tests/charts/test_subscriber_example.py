"""Another team's subscriber, on a NATS that has the users of the chart."""

import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import anyio
import helm_python as helm
import pytest
from nats.aio.client import Client

from sunk_lab.charts import render
from sunk_lab.nats import NatsServer
from sunk_lab.processes import Processes
from sunk_lab.slurm.ports import free_ports
from sunk_runtime.errors import PermanentError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import WITHIN_S, until

ROOT: Final = Path(__file__).parents[2]
FACT: Final = ROOT / "tests/contract/golden/sunk.syncer.v1.node_drained.json"
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


def test_the_subscriber_has_no_more_lines_than_promised() -> None:
    code = (ROOT / "examples/subscriber.py").read_text().partition('"""\n\n')[2]

    assert len([line for line in code.splitlines() if line]) <= 20


@pytest.mark.anyio
async def test_another_teams_subscriber_hears_what_happens_and_may_tell_nothing(
    servers: tuple[NatsServer, NatsServer], tmp_path: Path
) -> None:
    ours, theirs = servers
    (tmp_path / "password").write_text(PASSWORD)
    processes = Processes(tmp_path / "subscriber")
    denied: list[Exception] = []

    async def note(error: Exception) -> None:
        denied.append(error)

    program = [sys.executable, ROOT / "examples/subscriber.py", theirs.url]
    processes.spawn("subscriber", [*program, "subscriber-billing", tmp_path / "password"])
    log = processes.log_of("subscriber")
    syncer, billing = Client(), Client()
    await syncer.connect(ours.url, user="syncer-prod", password=PASSWORD)
    await billing.connect(theirs.url, user="subscriber-billing", password=PASSWORD, error_cb=note)
    try:

        def is_heard() -> bool:
            return "sunk.syncer.v1.node_drained gpu-000-012" in log.read_text()

        for _ in range(300):  # It says nothing when it begins to listen.
            await syncer.publish(SUBJECT, FACT.read_bytes())
            await syncer.flush()
            if is_heard():
                break
            processes.require("subscriber")
            await anyio.sleep(0.2)
        assert is_heard()
        await billing.publish(SUBJECT, b"{}")
        await billing.flush()
        with anyio.fail_after(WITHIN_S):
            while not denied:  # noqa: ASYNC110 - a callback without an event of its own.
                await anyio.sleep(0.05)
    finally:
        await billing.close()
        await syncer.close()
        processes.kill("subscriber")
    assert "permissions violation" in str(denied[0]).lower()


@pytest.mark.anyio
async def test_a_durable_subscriber_hears_what_happened_while_it_was_away(
    servers: tuple[NatsServer, NatsServer], tmp_path: Path, programs: Processes
) -> None:
    ours, theirs = servers
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    mirror = {"SUNK_MIRROR_URL": theirs.url, "SUNK_MIRROR_USER": "keeper", "SUNK_MIRROR_LOOK_S": "0.2"}
    mirror |= {"SUNK_MIRROR_CLUSTERS": "prod", "SUNK_MIRROR_PASSWORD_FILE": str(password)}
    programs.spawn("mirrors", [sys.executable, "-m", "sunk_runtime.mirroring"], env=mirror)

    admin = BusSettings(url=ours.url, user="admin", password_file=password)
    async with connect(admin, "test") as bus:
        await bus.provision("prod", admin)
        await until(lambda: "SUNK_EV_prod" in programs.log_of("mirrors").read_text())
        for number in (1, 2):  # It hears the first, is killed, and hears the second when it is back.
            await bus.publish(SUBJECT, FACT.read_bytes().replace(b":1718", f":{number}".encode()))
            program = [sys.executable, ROOT / "examples/durable_subscriber.py", theirs.url, USER]
            programs.spawn(f"run-{number}", [*program, password, "prod"])
            log = programs.log_of(f"run-{number}")

            def is_told(number: int = number, log: Path = log) -> bool:
                programs.require(f"run-{number}")
                return f"gpu-000-012:{number} " in log.read_text()

            await until(is_told)
            await until(lambda: is_acknowledged(theirs, password))
            programs.kill(f"run-{number}")
    assert "gpu-000-012:1 " not in programs.log_of("run-2").read_text()


async def is_acknowledged(server: NatsServer, password: Path) -> bool:
    settings = BusSettings(url=server.url, user=USER, password_file=password)
    async with connect(settings, "subscriber") as other:
        with pytest.raises(PermanentError, match="denies"):
            await other.js.consumer_info("SUNK_EV_prod", "metrics-exporter-facts")
        return not (await other.js.consumer_info("SUNK_EV_prod", USER)).num_ack_pending
