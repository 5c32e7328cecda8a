"""Questions of people, put to the services that know, and what the bus says besides.

What must stay true: of the services only those are asked that answer from their views. So a question costs
Slurm no call.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import anyio

from sunk_events.base import Request
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    ExplainJob,
    ExplainKubeNode,
    ExplainSlurmNode,
    Explanation,
    Later,
    Refused,
)
from sunk_events.view import Explained, Part
from sunk_runtime.errors import NoAnswerError, PermanentError
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import ask_until
from sunk_view import placements
from sunk_view.states import ClusterStates

PAUSE_S: Final = 0.2
_UNKNOWN: Final = frozenset({"unknown_node", "unknown_job"})
_BUS: Final = "placements on the bus"


class Explainer:
    """Answers why something is as it is, for every Slurm cluster."""

    def __init__(self, bus: Bus, clusters: Iterable[ClusterStates], *, answer_s: float) -> None:
        self._bus = bus
        self._clusters = tuple(clusters)
        self._answer_s = answer_s

    async def node(self, name: str) -> Explained:
        """Explain a Slurm node: what Slurm has, then its Pod, its Node and their lock."""
        questions: tuple[tuple[str, Request], ...] = (
            ("syncer", ExplainSlurmNode(node=name)),
            ("nodeset-controller", ExplainKubeNode(node=name)),
        )
        known = [key for states in self._clusters for key in (*states.nodes.keys(), *states.kube_pods.keys())]
        return await self._explained("node", name, questions, known, is_known=name in known)

    async def job(self, number: int) -> Explained:
        """Explain a Slurm job."""
        known = [key for states in self._clusters for key in states.jobs.keys()]  # noqa: SIM118 - a view is no dict
        questions = (("syncer", ExplainJob(job=number)),)
        return await self._explained("job", str(number), questions, known, is_known=str(number) in known)

    async def pod(self, namespace: str, name: str, *, is_gang: bool = False) -> Explained:
        """Explain a Pod that Slurm places, or a gang."""
        found = [(states, states.placement(namespace, name, is_gang=is_gang)) for states in self._clusters]
        parts = [part for states, one in found if one is not None for part in await self._placed(states, one)]
        what = "gang" if is_gang else "pod"
        if parts:
            return Explained(what=what, name=f"{namespace}/{name}", parts=tuple(parts))
        known = {
            one.pod
            for states in self._clusters
            for one in states.placements.values()
            if one.namespace == namespace and (one.roster is not None) == is_gang
        }
        unknown = Part(cluster="", service=_BUS, findings=(placements.unknown(name, is_gang=is_gang),))
        near = tuple(get_close_matches(name, sorted(known)))
        return Explained(what=what, name=f"{namespace}/{name}", parts=(unknown,), near=near)

    async def _placed(self, states: ClusterStates, one: PlacementState) -> list[Part]:
        gang = states.placements.get(one.gang) if one.gang else None
        findings = placements.findings(one, gang)
        parts = [Part(cluster=states.cluster, service=_BUS, findings=findings)]
        if one.job is not None and one.phase not in {"bound", "ended"}:
            parts.append(await self._part(states.cluster, "syncer", ExplainJob(job=one.job)))
        return parts

    async def _explained(
        self,
        what: str,
        name: str,
        questions: Iterable[tuple[str, Request]],
        known: list[str],
        *,
        is_known: bool,
    ) -> Explained:
        asked = [(states.cluster, *question) for states in self._clusters for question in questions]
        parts = dict[int, Part]()

        async def put(index: int, cluster: str, service: str, question: Request) -> None:
            parts[index] = await self._part(cluster, service, question)

        async with anyio.create_task_group() as tasks:
            for index, question in enumerate(asked):
                tasks.start_soon(put, index, *question)
        answered = [parts[index] for index in range(len(asked))]
        told = tuple(part for part in answered if part.problem not in _UNKNOWN)
        near = () if is_known else tuple(get_close_matches(name, sorted(set(known))))
        return Explained(what=what, name=name, parts=told, near=near)

    async def _part(self, cluster: str, service: str, question: Request) -> Part:
        deadline = anyio.current_time() + self._answer_s
        try:
            reply = await ask_until(self._bus, cluster, question, deadline=deadline, pause_s=PAUSE_S)
        except NoAnswerError:
            problem = f"{service} does not answer: no replica leads, or it is busy"
            return Part(cluster=cluster, service=service, problem=problem)
        except PermanentError as error:
            return Part(cluster=cluster, service=service, problem=str(error))
        match reply:
            case Explanation(findings=findings):
                return Part(cluster=cluster, service=service, findings=findings)
            case Refused(code=code) if code in _UNKNOWN:
                return Part(cluster=cluster, service=service, problem=code)
            case Later(reason=reason) | Refused(reason=reason):
                return Part(cluster=cluster, service=service, problem=reason)
            case _:
                problem = f"{service} answered {type(reply).__name__}"
                return Part(cluster=cluster, service=service, problem=problem)
