"""A client that does not read: NATS sends it away, and it comes back for everything."""

from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from sunk_events import subjects
from sunk_events.requests import NudgeNode
from sunk_runtime.testing import until
from sunk_trials.network import handled
from sunk_trials.stage import Site
from sunk_trials.trial import Trial, concluded, staged, writer_and_consumer
from sunk_trials.worker import CLUSTER

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

IMPATIENT = 'write_deadline: "500ms"\nmax_pending: 2MB'


async def test_a_client_that_stalls_is_sent_away_by_nats_and_comes_back_and_has_lost_nothing(
    tmp_path: Path,
) -> None:
    async def suffer(trial: Trial) -> None:
        await handled(trial, 50)
        consumer = await trial.actor("consumer")
        log = trial.site.servers[0].log
        consumer.signal(SIGSTOP)
        question = subjects.question(CLUSTER, NudgeNode(node="n1"))

        async def is_sent_away() -> bool:
            await trial.bus.send(question, b"x" * 250_000)  # It answers questions, however malformed.
            return "Slow Consumer" in log.read_text()

        await until(is_sent_away)
        consumer.signal(SIGCONT)
        await handled(trial, 50)

    with Site(tmp_path, extra=IMPATIENT) as site:
        cast = writer_and_consumer(tmp_path, site.url)
        async with staged(site, cast) as trial:
            assert (await concluded(trial, suffer)).breaches == []
