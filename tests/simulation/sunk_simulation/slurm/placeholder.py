"""The model of the pod-scheduler's placeholder.sh: what it asks of the hook gateway, and how it ends.

What must stay true: it does what the script does, in the script's order. A signal is looked at after each
wait, and cuts a wait short.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Mapping
from random import Random
from typing import Final

from sunk_simulation.loop import PROCESS
from sunk_simulation.slurm.calls import call

TERM, USR1 = 15, 10
FORK_S: Final = (0.003, 0.02)
"""What bash takes to begin a call, which is a process."""


class _Script:
    def __init__(self, job_id: int, node: str, variables: Mapping[str, str], random: Random) -> None:
        self._url = f"{variables['SUNK_HOOKS_URL']}/v1/jobs/{job_id}"
        self._token = variables["SUNK_PLACEHOLDER_TOKEN"]
        self._node = node
        self._random = random
        self._ending = asyncio.Event()
        for number in (TERM, USR1):
            PROCESS.get().handle_signal(number, self._ending.set)

    async def run(self) -> None:
        while True:
            if self._ending.is_set():
                await self._release()
            body = json.dumps({"node": self._node})
            status, _ = await self._call("POST", "started", 10, body)
            if status == 200:
                break
            if not self._ending.is_set():
                await self._pause(0.5)
        while True:
            if self._ending.is_set():
                await self._release()
            status, answer = await self._call("GET", "outcome", 60)
            if self._ending.is_set():
                continue
            if status == 200 and (found := re.search(r'"exit_code": *([0-9]+)', answer)):
                raise SystemExit(int(found[1]))
            if status == 204:
                continue
            await self._pause(1)

    async def _release(self) -> None:
        """Return never; it ends when the Pod is gone."""
        while True:
            status, _ = await self._call("POST", "release", 30)
            if status == 200:
                raise SystemExit(0)
            if status != 202:
                await asyncio.sleep(0.5)

    async def _call(self, method: str, path: str, seconds: float, body: str = "") -> tuple[int, str]:
        """Return status, 0 without an answer, and body; the first signal cuts it short."""
        await asyncio.sleep(self._random.uniform(*FORK_S))
        answered = call(method, f"{self._url}/{path}", self._token, body, seconds)
        if path == "release" or self._ending.is_set():
            return await answered
        return await self._until_told(answered) or (0, "")

    async def _pause(self, seconds: float) -> None:
        await self._until_told(asyncio.sleep(seconds))

    async def _until_told(self, waited: Awaitable[tuple[int, str] | None]) -> tuple[int, str] | None:
        loop = asyncio.get_running_loop()
        work = loop.create_task(_value(waited))
        told = loop.create_task(self._ending.wait())
        await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if work.done():
            return work.result()
        work.cancel()
        return None


async def _value(waited: Awaitable[tuple[int, str] | None]) -> tuple[int, str] | None:
    return await waited


async def placeholder(job_id: int, node: str, variables: Mapping[str, str], random: Random) -> None:
    """Be the script of a placeholder job."""
    await asyncio.sleep(random.uniform(0.001, 0.05))
    await _Script(job_id, node, variables, random).run()
