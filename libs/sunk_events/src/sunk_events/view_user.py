"""What the user of sunk-view may do on the bus: read states and facts, and ask why. It writes nothing.

`permissions` makes the user of it.
"""

from collections.abc import Iterable
from typing import Final

from sunk_events import jobs, locks, nodes, nodesets, placements, requests, subjects
from sunk_events.base import Request, State

VIEW: Final = "view"
"""The one user of sunk-view, which answers people about every Slurm cluster."""
READS: Final[tuple[type[State], ...]] = (
    nodes.SlurmNodeState,
    nodes.SlurmStatisticsState,
    jobs.SlurmJobState,
    nodesets.KubePodState,
    nodesets.KubeWatchState,
    locks.LockState,
    placements.PlacementState,
)
"""Whose states it follows."""
QUESTIONS: Final[tuple[type[Request], ...]] = (
    requests.ExplainSlurmNode,
    requests.ExplainJob,
    requests.ExplainKubeNode,
)
"""What it asks. The syncer answers from its views. For `ExplainKubeNode` the nodeset-controller reads the
Node and lists its Pods in the API server. If the jobs of Pods there are in doubt, it has the syncer confirm
them by a list of Slurm's jobs. So sunk-view shares these answers among its callers. `ExplainPlacement` looks
at a job in Slurm each time and is not among them."""

_API: Final = "$JS.API"


def published(clusters: Iterable[str]) -> tuple[str, ...]:
    """Return what it publishes on: questions, and calls of JetStream that read."""
    calls = ["$SYS.REQ.USER.INFO"]
    for cluster in clusters:
        calls += [subjects.questions(cluster, kind) for kind in QUESTIONS]
        for kind in READS:
            stream = subjects.bucket_stream(subjects.bucket(cluster, kind))
            calls += [
                f"{_API}.STREAM.INFO.{stream}",
                f"{_API}.STREAM.MSG.GET.{stream}",
                f"{_API}.CONSUMER.CREATE.{stream}",
                f"{_API}.CONSUMER.MSG.NEXT.{stream}.*",
            ]
        facts = subjects.fact_stream(cluster)
        calls += [f"{_API}.STREAM.INFO.{facts}", f"{_API}.STREAM.MSG.GET.{facts}"]
        calls.append(f"{_API}.STREAM.MSG.GET.{subjects.bucket_stream(subjects.lease_bucket(cluster))}")
    return tuple(calls)
