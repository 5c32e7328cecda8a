"""Runs tests of prolog.sh and epilog.sh with their models, started by the model of slurmd.

``pytest -p sunk_simulation.hooks_pytest_plugin`` with the plugins of bus and Slurm: the gateway that says
what it is told to is a process of the simulation then, and where a test waits virtual time passes.
"""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import anyio

from sunk_hook_gateway.testing import cluster, scripted
from sunk_runtime.testing import WITHIN_S
from sunk_simulation.http import Reply, Request, listen
from sunk_simulation.testing import world

pytest_plugins = ["sunk_simulation.pytest_plugin"]


class ScriptedGateway:
    """The face of `sunk_hook_gateway.testing.scripted.ScriptedGateway`."""

    def __init__(self) -> None:
        self.answers: list[scripted.ScriptedAnswer] = [scripted.YES]
        self.by_path: dict[str, scripted.ScriptedAnswer] = {}
        self.sent: list[tuple[str, str | None, dict[str, object]]] = []
        self.may_answer: Final = threading.Event()
        self.may_answer.set()
        sim = world.now()
        self._port: Final = world.port()
        process = sim.loop.process("scripted-gateway", host=sim.loop.outside.host)
        listen(process, self._port, self._answer)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def accept_all(self) -> None:
        """Say yes to everybody from now on."""
        self.by_path.clear()
        self.answers = [scripted.YES]
        self.may_answer.set()

    async def _answer(self, request: Request) -> Reply:
        token = request.headers.get("authorization")
        self.sent.append((request.path, token, json.loads(request.body)))
        while not self.may_answer.is_set():  # noqa: ASYNC110 - of a thread, where this is not simulated
            await anyio.sleep(0.05)
        answers = self.answers
        said = self.by_path.get(request.path) or (answers.pop(0) if len(answers) > 1 else answers[0])
        status, content = said
        return Reply(status, json.dumps(content, separators=(",", ":")).encode(), is_broken=status <= 0)


@contextmanager
def _scripted_gateway() -> Generator[ScriptedGateway]:
    yield ScriptedGateway()


def _until(condition: Callable[[], bool]) -> None:
    """Return when *condition* holds, in virtual time."""
    sim = world.now()
    ends_s = sim.now_s + WITHIN_S
    while not condition():
        if sim.now_s > ends_s:
            raise AssertionError(f"not in {WITHIN_S:.0f} s")
        sim.run(sim.sleep(0.1))


scripted.scripted_gateway = _scripted_gateway  # type: ignore[assignment]
scripted.ScriptedGateway = ScriptedGateway  # type: ignore[misc, assignment]
cluster.until = _until
