"""The models of prolog.sh and epilog.sh: what they ask of the hook gateway and of Slurm, in their order.

What must stay true: they do what the scripts of helm/slurm/files do. Jobs are batch jobs; who waits at a
terminal is not modelled.
"""

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

from sunk_simulation.slurm.calls import call
from sunk_simulation.slurm.commands import CommandError
from sunk_simulation.slurm.records import JobRecord
from sunk_slurm import hostlist

if TYPE_CHECKING:
    from sunk_simulation.slurm.model import ModelSlurm

_OVER: Final = frozenset(
    {"PENDING", "COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "GONE"}
)
_RUNNING: Final = "RUNNING"
_MARK: Final = '{"sunk":{'


@dataclass(frozen=True)
class HooksEnv:
    """What stands in hooks.env."""

    url: str
    token: str = "node-token"  # noqa: S105 - nobody's
    deadline_s: int = 50


class Hooks:
    """Both scripts, as a cluster's nodes have them."""

    def __init__(self, slurm: "ModelSlurm", env: HooksEnv) -> None:
        self._slurm = slurm
        self.env = env

    def install(self) -> None:
        """Have slurmd start them."""
        self._slurm.scripts.prolog_hook = self.prolog
        self._slurm.scripts.epilog_hook = self.epilog

    async def prolog(self, job: JobRecord, node: str) -> int:
        """Be prolog.sh."""
        return await _Prolog(self._slurm, self.env, job, node).run()

    async def epilog(self, job_id: int, node: str) -> int:
        """Be epilog.sh, which always ends well."""
        began, limit = time.monotonic(), self._slurm.conf.prolog_epilog_timeout_s
        longest = self.env.deadline_s + 15
        if limit < longest + 15:
            longest = limit - 15 if limit > 20 else limit // 4
        bound = min(longest, 10)
        while (spent := time.monotonic() - began) < bound:
            patience = min(max(longest - spent, 1), 15)
            url = f"{self.env.url}/v1/nodes/{node}/release"
            status, _ = await call("POST", url, self.env.token, f'{{"job":{job_id}}}', patience)
            if status == 200:
                return 0
            if status == 202:
                bound = longest  # The Pod is still there.
                await anyio.sleep(0.1)
            elif status in {408, 429}:
                await anyio.sleep(1)
            elif 400 <= status < 500:
                return 0
            else:
                await anyio.sleep(self._slurm.random.uniform(0.3, 0.8))
        return 0


class _Prolog:
    def __init__(self, slurm: "ModelSlurm", env: HooksEnv, job: JobRecord, node: str) -> None:
        self._slurm = slurm
        self._env = env
        self._job = job
        self._node = node
        self._began = time.monotonic()
        self._waited = 0
        self._status, self._answer = 0, ""
        self._trouble = ""
        limit, deadline = slurm.conf.prolog_epilog_timeout_s, env.deadline_s
        self._deadline, self._give_up, self._end = deadline, deadline + 15, deadline + 27
        if limit < deadline + 30:
            self._deadline = limit - 30 if limit > 31 else 1
            self._give_up = (self._deadline + limit) // 2
            self._end = limit - 3 if limit > 6 else limit // 2

    async def run(self) -> int:
        while self._spent < self._give_up:
            components = self._components()
            if components is None:
                self._trouble = "slurmctld does not list the components of the job"
                if not await self._is_running():
                    return 0
            else:
                await self._ask(components)
                if (code := await self._heeded()) is not None:
                    return code
                if 400 <= self._status < 500 and self._status not in {408, 409, 429}:
                    self._trouble = f"the hook gateway answered HTTP {self._status}"
                    break
                if components and not await self._is_running():
                    return 0
            await anyio.sleep(self._slurm.random.uniform(0.3, 0.8))
        trouble = self._trouble or "no answer from the hook gateway"
        if not await self._is_running():
            return 0
        await self._drain(f"k8s: prolog pre-hook failed: {trouble} (sunk:verify-undrain)")
        await self._stop("requeue")
        return 1

    @property
    def _spent(self) -> int:
        return int(time.monotonic() - self._began)

    async def _ask(self, components: list[dict[str, Any]]) -> None:
        left, held = max(self._deadline - self._spent, 1), 15 if self._waited < 15 else 60
        if left <= held + 10:
            held = left
        body: dict[str, Any] = {
            "job": self._job.job_id,
            "level": "strict" if self._job.extra.startswith(_MARK) else "normal",
            "deadline_s": left,
            "hold_s": held,
            "waited_s": self._waited,
        }
        if components:
            body |= {"started": self._job.start_time, "components": components}
        url = f"{self._env.url}/v1/nodes/{self._node}/prehook"
        patience = max(min(self._give_up - self._spent, held + 5), 1)
        self._status, self._answer = await call("POST", url, self._env.token, json.dumps(body), patience)
        if self._status == 202:
            self._waited = self._spent

    async def _heeded(self) -> int | None:
        """Do what the answer asks for; return how the script ends with it, None: it asks again."""
        if self._status == 200:
            if '"locked":true' in self._answer:
                return 0
            if not await self._is_running():
                return 0
            self._waited = self._spent
            self._trouble = "for the hook gateway the job has ended, but in Slurm it runs"
        elif self._status == 409:
            told: dict[str, Any] = json.loads(self._answer)
            reason = told.get("reason", "k8s: prolog pre-hook failed (sunk:verify-undrain)")
            how = "requeuehold" if told.get("hold") else "requeue"
            return await self._refuse(reason, how, is_drain=bool(told.get("drain")))
        return None

    async def _refuse(self, reason: str, how: str, *, is_drain: bool) -> int:
        if not await self._is_running():
            return 0
        if is_drain:
            await self._drain(reason)
        if not await self._stop(how):
            return 1
        if how == "requeuehold" and self._job.requeue:
            await self._command(
                "scontrol", "update", f"jobid={self._name}", f"admincomment=sunk: held: {reason}"
            )
        return 0

    async def _drain(self, reason: str) -> None:
        """Drain our node; a drain that is there stays as it is."""
        for _ in range(3):
            shown = await self._command("scontrol", "show", "node", self._node)
            if shown is not None and "DRAIN" in shown.partition("State=")[2].split()[0]:
                return
            update = ("scontrol", "update", f"nodename={self._node}", "state=drain", f"reason={reason}")
            if shown is not None and await self._command(*update) is not None:
                return
            await anyio.sleep(0.3)

    async def _stop(self, how: str) -> bool:
        """Take the job out of RUNNING."""
        while self._spent < self._end:
            if not await self._is_running():
                return True
            verb = ("scontrol", how) if self._job.requeue else ("scancel",)
            await self._command(*verb, self._name)
            if not await self._is_running():
                return True
            await anyio.sleep(0.3)
        return False

    @property
    def _name(self) -> str:
        job = self._job
        if job.array_task_id is not None:
            return f"{job.array_job_id}_{job.array_task_id}"
        return str(job.het_job_id or job.job_id)

    async def _is_running(self) -> bool:
        """Whether Slurm says so, or does not say anything."""
        if await self._command("scontrol", "ping") is None:
            return True
        job = self._slurm.state.jobs.get(self._job.job_id)
        state = "GONE" if job is None else "COMPLETING" if job.is_completing else job.base
        return state not in _OVER

    def _components(self) -> list[dict[str, Any]] | None:
        """Return the other components that this node has to wait for; None: Slurm did not say."""
        job = self._job
        if job.het_job_id != job.job_id or job.batch_host != self._node:
            return []
        jobs = self._slurm.state.jobs.values()
        others = [one for one in jobs if one.het_job_id == job.job_id and one.job_id != job.job_id]
        if self._slurm.ctld is None or any(one.is_pending for one in others):
            return None
        active = [one for one in others if one.base == _RUNNING and not one.is_completing]
        return [{"job": one.job_id, "nodes": hostlist.compress(one.nodes)} for one in active]

    async def _command(self, *words: str) -> str | None:
        """Run a command of Slurm; None where it failed."""
        await anyio.sleep(self._slurm.random.uniform(0.005, 0.03))
        if self._slurm.ctld is None or self._slurm.ctld.process.is_paused:
            await anyio.sleep(5)
        try:
            return self._slurm.exec(*words)
        except CommandError:
            return None
