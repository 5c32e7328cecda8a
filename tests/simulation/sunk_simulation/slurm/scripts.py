"""What slurmd starts: batch scripts in the little shell that tests write, and hooks if there are any.

A script that holds a placeholder's token is the pod-scheduler's, which has a model of its own.
"""

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import anyio

from sunk_simulation.loop import PROCESS, Main
from sunk_simulation.slurm.placeholder import placeholder
from sunk_simulation.slurm.records import JobRecord

if TYPE_CHECKING:
    from sunk_simulation.slurm.model import ModelSlurm

PLACEHOLDER: Final = "SUNK_PLACEHOLDER_TOKEN"
_VARIABLE: Final = re.compile(r"\$\{?([A-Z_]+)(?::-([^}]*))?\}?")
_SIGNALS: Final = {"TERM": 15, "USR1": 10, "INT": 2}

Hook = Callable[[int, str], Awaitable[int]]
"""Of a job's number and a node; returns its exit status."""


class Scripts:
    """The scripts of one cluster."""

    def __init__(self, slurm: "ModelSlurm") -> None:
        self._slurm = slurm
        self.prolog_hook: Callable[[JobRecord, str], Awaitable[int]] | None = None
        self.epilog_hook: Hook | None = None
        self.files: Final[dict[str, None]] = {}
        """What ``touch`` has made."""

    def prolog(self, job: JobRecord, node: str) -> Main:
        """Return the prolog of *job* on *node*."""

        async def main() -> None:
            await anyio.sleep(self._slurm.random.uniform(0.005, 0.05))
            if self.prolog_hook is not None:
                raise SystemExit(await self.prolog_hook(job, node))

        return main

    def epilog(self, job_id: int, node: str) -> Main:
        """Return the epilog of a job on *node*."""

        async def main() -> None:
            await anyio.sleep(self._slurm.random.uniform(0.005, 0.05))
            if self.epilog_hook is not None:
                raise SystemExit(await self.epilog_hook(job_id, node))

        return main

    def batch(self, job: JobRecord, node: str) -> Main:
        """Return the batch script of *job*."""
        given = dict(word.split("=", 1) for word in job.environment if "=" in word)
        variables = {**given, "SLURM_JOB_ID": str(job.job_id), "SLURMD_NODENAME": node}
        if job.array_task_id is not None:
            variables["SLURM_ARRAY_TASK_ID"] = str(job.array_task_id)
        if PLACEHOLDER in job.script:
            return lambda: placeholder(job.job_id, node, variables, self._slurm.random)
        return lambda: _Shell(self, variables).run(job.script)

    def command(self, *argv: str) -> None:
        """Run a command of Slurm, as scripts do."""
        self._slurm.exec(*argv)


class _Shell:
    """A bash that knows ten words."""

    def __init__(self, scripts: Scripts, variables: dict[str, str]) -> None:
        self._scripts = scripts
        self._variables = variables

    async def run(self, script: str) -> None:
        status = 0
        for line in _lines(script):
            status = await self._chain(line)
        raise SystemExit(status)

    async def _chain(self, line: str) -> int:
        status = 0
        for operator, words in _parts(line):
            if (operator == "||") == (status == 0) and operator:
                continue
            status = await self._command(words)
        return status

    async def _command(self, text: str) -> int:  # noqa: C901 - a table of words
        if text.startswith("while "):
            await anyio.sleep_forever()
        if text.startswith("trap "):
            self._trap(text)
            return 0
        words = [self._expanded(word) for word in text.split()]
        match words:
            case ["exec", *rest]:
                raise SystemExit(await self._command(" ".join(rest)))
            case ["sleep", seconds]:
                await anyio.sleep(float(seconds))
            case ["exit", *code]:
                raise SystemExit(int(code[0]) if code else 0)
            case ["[", one, "-le", other, "]"]:
                return int(int(one) > int(other))
            case ["touch", path]:
                self._scripts.files[path] = None
            case ["true" | ":", *_]:
                return 0
            case ["false"]:
                return 1
            case ["scontrol" | "scancel", *_]:
                self._scripts.command(*words)
            case _:
                raise NotImplementedError(f"the model's shell does not know {text!r}")
        return 0

    def _trap(self, text: str) -> None:
        found = re.fullmatch(r"trap (?:'([^']*)'|(\S+)) (.+)", text)
        assert found is not None, text
        body, process = found[1] or found[2] or "", PROCESS.get()
        for name in found[3].split():

            def caught(body: str = body) -> None:
                if body.startswith("exit"):
                    process.exit(int(body.split()[1]))

            if name in _SIGNALS:
                process.handle_signal(_SIGNALS[name], caught)

    def _expanded(self, word: str) -> str:
        plain = word.strip("\"'")
        return _VARIABLE.sub(lambda found: self._variables.get(found[1], found[2] or ""), plain)


def _lines(script: str) -> Iterator[str]:
    for raw in script.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith(("while ", "trap ")):
            yield line
        else:
            yield from (part.strip() for part in line.split(";") if part.strip())


def _parts(line: str) -> Iterator[tuple[str, str]]:
    if line.startswith(("while ", "trap ")):
        yield "", line
        return
    operator = ""
    for part in re.split(r"(\|\||&&)", line):
        if part in {"||", "&&"}:
            operator = part
        else:
            yield operator, part.strip()
