"""Another team's subscriber, on a NATS that has the users of the chart."""

import re
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import helm_python as helm
import pytest
from nats.aio.client import Client

from sunk_lab.charts import render
from sunk_lab.nats import NatsServer
from sunk_lab.processes import Processes
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


def users_of_the_chart() -> str:
    made = render(helm.Chart.load(ROOT / "helm/sunk"), VALUES, name="sunk", namespace="sunk")
    conf = str(made["ConfigMap", "sunk-nats"]["data"]["one.conf"])
    return re.sub(r"\$PASSWORD_\w+", PASSWORD, conf[conf.index("authorization {") :])


def test_the_subscriber_has_no_more_lines_than_promised() -> None:
    code = (ROOT / "examples/subscriber.py").read_text().partition('"""\n\n')[2]

    assert len([line for line in code.splitlines() if line]) <= 20


@pytest.mark.anyio
async def test_another_teams_subscriber_hears_what_happens_and_may_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    processes = Processes(tmp_path / "subscriber")
    denied: list[Exception] = []

    async def note(error: Exception) -> None:
        denied.append(error)

    with NatsServer(tmp_path / "nats", extra=users_of_the_chart()) as server:
        program = [sys.executable, ROOT / "examples/subscriber.py", server.url]
        processes.spawn("subscriber", [*program, "subscriber-billing", tmp_path / "password"])
        log = processes.log_of("subscriber")
        syncer, billing = Client(), Client()
        await syncer.connect(server.url, user="syncer-prod", password=PASSWORD)
        await billing.connect(server.url, user="subscriber-billing", password=PASSWORD, error_cb=note)
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
async def test_a_durable_subscriber_hears_what_happened_while_it_was_away(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    processes = Processes(tmp_path / "subscriber")

    with NatsServer(tmp_path / "nats", extra=users_of_the_chart()) as server:
        admin = BusSettings(url=server.url, user="admin", password_file=password)
        async with connect(admin, "test") as bus:
            await bus.provision("prod", admin)
            for number in (1, 2):  # It hears the first, is killed, and hears the second when it is back.
                await bus.publish(SUBJECT, FACT.read_bytes().replace(b":1718", f":{number}".encode()))
                program = [sys.executable, ROOT / "examples/durable_subscriber.py", server.url, USER]
                processes.spawn(f"run-{number}", [*program, password, "prod"])
                log = processes.log_of(f"run-{number}")

                def is_told(number: int = number, log: Path = log) -> bool:
                    processes.require(f"run-{number}")
                    return f"gpu-000-012:{number} " in log.read_text()

                async def is_acknowledged() -> bool:
                    return not (await bus.js.consumer_info("SUNK_EV_prod", USER)).num_ack_pending

                await until(is_told)
                await until(is_acknowledged)
                processes.kill(f"run-{number}")
        async with connect(
            BusSettings(url=server.url, user=USER, password_file=password), "subscriber"
        ) as other:
            with pytest.raises(PermanentError, match="denies"):
                await other.js.consumer_info("SUNK_EV_prod", "metrics-exporter-facts")

    assert "gpu-000-012:1 " not in processes.log_of("run-2").read_text()
