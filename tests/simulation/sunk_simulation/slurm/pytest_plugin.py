"""Runs tests that were written for real Slurm against the model, in virtual time.

``pytest -p sunk_simulation.bus.pytest_plugin -p sunk_simulation.slurm.pytest_plugin``:
`sunk_lab.slurm.host.HostSlurm` is the model then. So a contract of both is one suite.
"""

import os
import re
import shlex
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from sunk_lab.errors import LabError
from sunk_lab.slurm import host
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.releases import Release
from sunk_lab.slurm.tokens import new_keys, new_token
from sunk_simulation.bus.pytest_plugin import world
from sunk_simulation.slurm.calls import call
from sunk_simulation.slurm.commands import CommandError
from sunk_simulation.slurm.conf import PartitionConf, SlurmConf, with_lines
from sunk_simulation.slurm.hooks import Hooks, HooksEnv
from sunk_simulation.slurm.model import ModelSlurm
from sunk_simulation.slurm.records import JobRecord
from sunk_simulation.slurm.slurmd import NodeConf

START_NS: Final = 1_200_000_000
"""What slurmctld's start takes; a test that starts it, and then runs a command, waits for so long."""


class HostSlurm:
    """The model behind the face of `sunk_lab.slurm.host.HostSlurm`.

    A fixture of a module has it for several tests, and each of these has a world of its own: what a test
    leaves in Slurm is gone with it.
    """

    def __init__(
        self,
        release: Release,
        folder: Path,
        *,
        cache: Path,
        report: Callable[[str], None],
        name: str = "lab",
        port: int = 0,
        nodes: NodeRange | int = 2,
        records: int = 0,
        prolog_epilog_timeout_s: int = 90,
        more: tuple[str, ...] = (),
        has_own_clock: bool = False,
        has_accounting: bool = False,
        has_accounting_backup: bool = False,
        has_backup: bool = False,
    ) -> None:
        """Describe it."""
        if has_backup or has_accounting_backup:
            pytest.skip("the model has one slurmctld and one slurmdbd")
        self.release: Final = release
        self.name: Final = name
        self._folder = folder
        self._nodes = nodes if isinstance(nodes, NodeRange) else NodeRange(count=nodes, first_port=0)
        self._keys = new_keys()
        self._more = more
        self._has_accounting = has_accounting
        self._written: dict[str, str] = {}
        """Files, which outlive the test that wrote them."""
        self._port = 0
        self._model: ModelSlurm | None = None
        self._generation: object = None

    @property
    def url(self) -> str:
        """Return slurmrestd's address."""
        self._now()
        return f"http://127.0.0.1:{self._port}"

    @property
    def jwt_key(self) -> Path:
        """Return the file of the key that tokens are made with."""
        return self._folder / "etc/jwt.key"

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the nodes that slurm.conf names."""
        return self._nodes.names

    def token(self, user: str = "root", lifespan_s: int = 86400) -> str:
        """Return a token."""
        return new_token(self._keys.jwt, user=user, lifespan_s=lifespan_s)

    def start(self) -> None:
        """Make what is needed of it on disk."""
        (self._folder / "etc").mkdir(parents=True, exist_ok=True)
        self.jwt_key.write_bytes(self._keys.jwt)

    def stop(self) -> None:
        """Do nothing: it goes with its world."""

    def start_daemon(self, name: str) -> None:
        """Start a daemon."""
        model = self._now()
        match name:
            case "slurmctld":
                world.now().loop.now_ns += START_NS
                model.start_ctld()
            case "slurmrestd":
                model.restd.start()
            case _:
                model.slurmds[name].start()

    def add_node(
        self, name: str, *, cpus: int = 4, memory_mib: int = 16000, features: tuple[str, ...] = ()
    ) -> None:
        """Start a slurmd that registers itself."""
        conf = NodeConf(name, cpus=cpus, real_memory=memory_mib, features=features, is_dynamic=True)
        self._now().add_node(conf)

    def kill_daemon(self, name: str, sig: int = signal.SIGKILL) -> None:
        """End a daemon."""
        model = self._now()
        match name:
            case "slurmctld":
                model.kill_ctld() if sig == signal.SIGKILL else model.stop_ctld()
            case "slurmrestd":
                model.restd.kill()
            case _:
                model.slurmds[name].kill()

    def freeze_daemon(self, name: str) -> None:
        """Let a daemon hang."""
        self._process(name).pause()

    def thaw_daemon(self, name: str) -> None:
        """Let it go on."""
        self._process(name).resume()

    def exec(self, *argv: str, timeout_s: float = 60.0) -> str:
        """Run a command of Slurm, or what a test does to its files."""
        model = self._now()
        match argv:
            case ["sh", "-c", text] if "rm -rf" in text:
                model.lose_jobs() if "job_state" in text else model.lose_state()
                return ""
            case ["sh" | "bash", "-c", text]:
                return self.exec(*_words(text.partition(";")[0]))
            case ["ls", folder]:
                found = [path.removeprefix(f"{folder}/") for path in self._files()]
                return "".join(f"{name}\n" for name in found)
            case ["rm", *_, path]:
                self._files().pop(path, None)
                return ""
            case _:
                pass
        try:
            return model.exec(*argv)
        except CommandError as error:
            raise LabError(str(error)) from error

    def write_file(self, name: str, content: str) -> str:
        """Write a file."""
        self._now()
        self._written[name] = content
        self._apply(name, content)
        return f"/lab/etc/{name}"

    def _apply(self, name: str, content: str) -> None:
        """Have the model of the test that runs know a file, and do what it does if it is a hook."""
        assert self._model is not None
        scripts = self._model.scripts
        scripts.files[f"/lab/etc/{name}"] = None
        if name == "epilog" and (found := re.search(r"http://127\.0\.0\.1:\d+", content)):
            scripts.epilog_hook = partial(_ask_until_gone, found[0])
        if name == "hooks.env":
            env = dict(line.split("=", 1) for line in content.splitlines() if "=" in line)
            deadline_s = int(env["SUNK_HOOKS_DEADLINE_S"])
            Hooks(self._model, HooksEnv(env["SUNK_HOOKS_URL"], deadline_s=deadline_s)).install()
        if name == "prolog" and "block." in content:
            scripts.prolog_hook = self._wait_while_blocked

    async def _wait_while_blocked(self, _job: JobRecord, node: str) -> int:
        """Be a prolog that waits while a file is there, and leaves another one."""
        while f"/lab/etc/block.{node}" in self._files():  # noqa: ASYNC110 - a file tells nobody
            await anyio.sleep(0.1)
        self._files()[f"/lab/etc/passed.{node}"] = None
        return 0

    def _files(self) -> dict[str, None]:
        return self._now().scripts.files

    def _process(self, name: str) -> Any:
        model = self._now()
        match name:
            case "slurmctld":
                return model.ctld.process if model.ctld else None
            case "slurmrestd":
                return model.restd.process
            case _:
                return model.slurmds[name].process

    def _now(self) -> ModelSlurm:
        """Return the model of the test that runs."""
        sim = world.now()
        if self._model is None or self._generation is not sim:
            self._generation = sim
            self._port = world.port()
            tiers = PartitionConf(name="main")
            conf = SlurmConf(
                release=self.release.version,
                kill_wait_s=5,
                partitions=(tiers,),
                jwt_key=self._keys.jwt,
                has_accounting=self._has_accounting,
            )
            nodes = [
                NodeConf(
                    name, cpus=self._nodes.cpus, real_memory=self._nodes.memory_mib, gpus=self._nodes.gpus
                )
                for name in self._nodes.names
            ]
            self._model = ModelSlurm(
                sim.loop,
                sim.trace,
                sim.random("slurm"),
                with_lines(conf, self._more),
                nodes if self._nodes.count else (),
                restd_host=sim.loop.outside.host,
                port=self._port,
                one_host=sim.loop.outside.host,
            )
            self._model.start()
            self._model.settle()
            for name, content in self._written.items():
                if not name.startswith("block."):
                    self._apply(name, content)
        return self._model


async def _ask_until_gone(url: str, job_id: int, node: str) -> int:
    """Be an epilog that asks the gateway at *url* for as long as a Pod is there, and not for ever."""
    for _ in range(100):
        status, _ = await call("POST", f"{url}/v1/nodes/{node}/release", "", f'{{"job":{job_id}}}', 10)
        if status == 200:
            break
        await anyio.sleep(0.2)
    return 0


def _words(line: str) -> list[str]:
    """Return the words of a command line, with bash's ``$'a\\xff'`` as the bytes that it stands for."""

    def bytes_of(found: re.Match[str]) -> str:
        raw = re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), found[1])
        return "'" + raw.encode("latin-1").decode("utf-8", "surrogateescape") + "'"

    return shlex.split(re.sub(r"\$'([^']*)'", bytes_of, line))


host.HostSlurm = HostSlurm  # type: ignore[misc, assignment]
os.geteuid = lambda: 0  # The model needs no rights.
