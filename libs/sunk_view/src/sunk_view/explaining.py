"""Why something is as it is: what the services that know answer, and what the bus says besides.

What must stay true: no user can load Slurm or the API server with questions. The syncer answers from its
views. The nodeset-controller reads the Node and lists its Pods for a question about a node, and may have the
syncer confirm jobs in Slurm: such answers are shared among callers, and few are asked for at once.
"""

from collections.abc import Iterable
from typing import Final

import anyio
import msgspec

from sunk_events.base import Request
from sunk_events.placements import PlacementState
from sunk_events.requests import ExplainJob, ExplainKubeNode, ExplainSlurmNode
from sunk_events.view import Explained, Part
from sunk_runtime.near import near
from sunk_view import hiding, placements
from sunk_view.questions import UNKNOWN, Questions
from sunk_view.states import ClusterStates

_BUS: Final = "placements on the bus"
_NOT_YET: Final = "it does not know job {} yet, or no longer: ask again in some seconds"


class Explainer:
    """Answers why something is as it is, for every Slurm cluster."""

    def __init__(self, questions: Questions, clusters: Iterable[ClusterStates]) -> None:
        self._questions = questions
        self._clusters = tuple(clusters)

    async def node(self, name: str) -> Explained:
        """Explain a Slurm node: what Slurm has, then its Pod, its Node and their lock."""
        questions: tuple[tuple[str, Request], ...] = (
            ("syncer", ExplainSlurmNode(node=name)),
            ("nodeset-controller", ExplainKubeNode(node=name)),
        )
        parts = await self._answered(questions)
        if any(part.findings for part in parts):
            return Explained(what="node", name=name, parts=parts)
        for states in self._clusters:
            states.require(states.nodes, states.kube_pods)
        known = {key for states in self._clusters for key in (*states.nodes.keys(), *states.kube_pods.keys())}
        others = () if name in known else near(name, known)
        return Explained(what="node", name=name, parts=parts, near=others)

    async def job(self, number: int) -> Explained:
        """Explain a Slurm job. Another number is another job, so none is near."""
        parts = await self._answered([("syncer", ExplainJob(job=number))])
        return Explained(what="job", name=str(number), parts=parts)

    async def pod(
        self, namespace: str, name: str, *, is_gang: bool = False, is_ahead_named: bool = False
    ) -> Explained:
        """Explain a Pod that Slurm places, or a gang.

        Args:
            namespace: Of Kubernetes.
            name: Of the Pod, or of the gang's workload.
            is_gang: It is a gang.
            is_ahead_named: The caller may know the jobs of others ahead of its job, and their users.
        """
        found = [(states, states.placement(namespace, name, is_gang=is_gang)) for states in self._clusters]
        parts = [
            part
            for states, one in found
            if one is not None
            for part in await self._placed(states, one, is_ahead_named=is_ahead_named)
        ]
        what = "gang" if is_gang else "pod"
        if parts:
            return Explained(what=what, name=f"{namespace}/{name}", parts=tuple(parts))
        known = {
            one.pod
            for states in self._clusters
            for one in states.placements.values()
            if one.namespace == namespace and (one.roster is not None) == is_gang
        }
        silent = ", ".join(
            f"pod-scheduler of {states.cluster} {why}"
            for states in self._clusters
            if (why := states.without_scheduler())
        )
        finding = placements.unknown(name, is_gang=is_gang, silent=silent)
        unknown = Part(cluster="", service=_BUS, findings=(finding,))
        whole = f"{namespace}/{name}"
        if silent:
            return Explained(what=what, name=whole, parts=(unknown,))
        return Explained(what=what, name=whole, parts=(unknown,), is_unknown=True, near=near(name, known))

    async def _placed(
        self, states: ClusterStates, one: PlacementState, *, is_ahead_named: bool
    ) -> list[Part]:
        gang = states.placements.get(one.gang) if one.gang else None
        findings = placements.findings(one, gang)
        parts = [Part(cluster=states.cluster, service=_BUS, findings=findings)]
        # After Slurm has lost a job, another may have its number.
        if one.job is not None and one.lost is None and one.phase not in {"bound", "ended"}:
            question = ExplainJob(job=one.job, is_ahead_named=is_ahead_named)
            part = await self._questions.part(states.cluster, "syncer", question)
            if part.problem in UNKNOWN:
                part = msgspec.structs.replace(part, problem=_NOT_YET.format(one.job))
            if not is_ahead_named:
                of_own = tuple(map(hiding.without_jobs_ahead, part.findings))
                part = msgspec.structs.replace(part, findings=of_own)
            parts.append(part)
        return parts

    async def _answered(self, questions: Iterable[tuple[str, Request]]) -> tuple[Part, ...]:
        """Return what the services of each cluster answer, without those that do not know the thing."""
        all_questions = [(states.cluster, *question) for states in self._clusters for question in questions]
        parts = dict[int, Part]()

        async def put(index: int, cluster: str, service: str, question: Request) -> None:
            parts[index] = await self._questions.part(cluster, service, question)

        async with anyio.create_task_group() as tasks:
            for index, question in enumerate(all_questions):
                tasks.start_soon(put, index, *question)
        answered = [parts[index] for index in range(len(all_questions))]
        return tuple(part for part in answered if part.problem not in UNKNOWN)
