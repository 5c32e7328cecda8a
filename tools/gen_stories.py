"""Writes `docs/stories.md`: who says what to whom in the five stories of the demo, as sequence diagrams.

Sender and receivers of what goes over the bus come from the contract's own tables: a step that no service may
take ends the generator. ``--check`` as in `gen_schemas.py`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from generated import settle

from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.codec import tag_of
from sunk_events.locks import LockLocked, LockPending, LockState, LockUnlocked
from sunk_events.nodes import NodeDrained, NodeUndrained, SlurmNodeState, SlurmPartitionState
from sunk_events.nodesets import KubePodState, NodeCordoned, NodeUncordoned
from sunk_events.permissions import ASKED_BY, READS, Service
from sunk_events.placements import (
    PlacementBound,
    PlacementEnded,
    PlacementStarted,
    PlacementState,
    PlacementSubmitted,
)
from sunk_events.requests import (
    AcquireLock,
    LockGranted,
    LockWaiting,
    Noted,
    PlacementAnnounced,
    ReleaseLock,
)

PAGE: Final = Path("docs/stories.md")
USER: Final = "a user"
KUBERNETES: Final = "Kubernetes"
SLURM: Final = "Slurm"
NODE: Final = "slurmd"
PROMETHEUS: Final = "Prometheus"


class Call(msgspec.Struct, frozen=True):
    """A call or a watch outside of the bus."""

    sender: str
    receiver: str
    text: str


class Fact(msgspec.Struct, frozen=True):
    """Its owner publishes a fact."""

    kind: type[Event]


class Stored(msgspec.Struct, frozen=True):
    """Its owner stores a state, which *readers* follow."""

    kind: type[State]
    readers: tuple[Service, ...]


class Asked(msgspec.Struct, frozen=True):
    """A service asks a question of the one that answers it."""

    kind: type[Request]


class Answered(msgspec.Struct, frozen=True):
    """That one answers."""

    kind: type[Request]
    reply: type[Reply]


Step = Call | Fact | Stored | Asked | Answered
SYNCER: Final[Service] = "syncer"
CONTROLLER: Final[Service] = "nodeset-controller"
SCHEDULER: Final[Service] = "pod-scheduler"
GATEWAY: Final[Service] = "hook-gateway"
EXPORTER: Final[Service] = "metrics-exporter"
STORIES: Final[dict[str, tuple[str, tuple[Step, ...]]]] = {
    "A cordon drains the Slurm node": (
        "An uncordon goes the same way, and ends the drain.",
        (
            Call(USER, KUBERNETES, "kubectl cordon"),
            Call(KUBERNETES, CONTROLLER, "watch: the Node is unschedulable"),
            Fact(NodeCordoned),
            Stored(KubePodState, (SYNCER,)),
            Call(SYNCER, SLURM, "read the node, then drain it (k8s: cordon)"),
            Fact(NodeDrained),
            Stored(SlurmNodeState, (CONTROLLER, EXPORTER)),
            Call(CONTROLLER, KUBERNETES, "SlurmDrain on the Pod"),
            Call(USER, KUBERNETES, "kubectl uncordon"),
            Call(KUBERNETES, CONTROLLER, "watch: the Node is schedulable"),
            Fact(NodeUncordoned),
            Stored(KubePodState, (SYNCER,)),
            Call(SYNCER, SLURM, "end the drain, if it is our own"),
            Fact(NodeUndrained),
        ),
    ),
    "A drain in Slurm shows on the Pod and the Node": (
        "Slurm does not report a drain, so the syncer reads slurmctld's counters twice a second.",
        (
            Call(USER, SLURM, "scontrol update state=drain"),
            Call(SYNCER, SLURM, "read the counters, and the nodes if they have changed"),
            Fact(NodeDrained),
            Stored(SlurmNodeState, (CONTROLLER, EXPORTER)),
            Call(CONTROLLER, KUBERNETES, "SlurmDrain on the Pod, SlurmCordon on the Node"),
        ),
    ),
    "A job gets its Node for itself": (
        "`lock_pending` and the second question come only if Pods have to leave ([locks.md](locks.md)).",
        (
            Call(USER, SLURM, "sbatch"),
            Call(SLURM, NODE, "run the prolog of the job"),
            Call(NODE, GATEWAY, "prolog.sh: may the job start?"),
            Asked(AcquireLock),
            Call(CONTROLLER, KUBERNETES, "annotation and taint on the Node"),
            Fact(LockPending),
            Answered(AcquireLock, LockWaiting),
            Stored(LockState, (GATEWAY, EXPORTER)),
            Call(KUBERNETES, CONTROLLER, "the other Pods are gone"),
            Fact(LockLocked),
            Stored(LockState, (GATEWAY, EXPORTER)),
            Asked(AcquireLock),
            Answered(AcquireLock, LockGranted),
            Call(GATEWAY, NODE, "200"),
            Call(NODE, NODE, "the job's script runs"),
            Call(NODE, GATEWAY, "epilog.sh: the job is over"),
            Asked(ReleaseLock),
            Answered(ReleaseLock, Noted),
            Call(CONTROLLER, KUBERNETES, "remove annotation and taint"),
            Fact(LockUnlocked),
        ),
    ),
    "A Pod runs where Slurm decides": (
        "The placeholder's prolog locks the Node, as above. All phases: [placements.md](placements.md).",
        (
            Call(USER, KUBERNETES, "create a Pod with schedulerName: sunk-scheduler"),
            Call(KUBERNETES, SCHEDULER, "watch: the Pod"),
            Call(SCHEDULER, SLURM, "submit the placeholder job, held"),
            Fact(PlacementSubmitted),
            Stored(PlacementState, (SYNCER, CONTROLLER, GATEWAY, EXPORTER)),
            Call(SCHEDULER, SLURM, "release the job"),
            Call(SLURM, NODE, "start it: prolog, then the script"),
            Call(NODE, GATEWAY, "the script: I run"),
            Asked(PlacementAnnounced),
            Answered(PlacementAnnounced, Noted),
            Fact(PlacementStarted),
            Call(SCHEDULER, SLURM, "append ': started' to the job's Extra"),
            Call(SCHEDULER, KUBERNETES, "bind the Pod to the Node"),
            Fact(PlacementBound),
            Call(KUBERNETES, SCHEDULER, "watch: the Pod has finished"),
            Fact(PlacementEnded),
            Stored(PlacementState, (GATEWAY,)),
            Call(GATEWAY, NODE, "the script may end, with the Pod's exit code"),
        ),
    ),
    "Prometheus sees all of it": (
        "A scrape calls neither Slurm nor Kubernetes.",
        (
            Stored(SlurmNodeState, (EXPORTER,)),
            Stored(SlurmPartitionState, (EXPORTER,)),
            Stored(LockState, (EXPORTER,)),
            Stored(PlacementState, (EXPORTER,)),
            Call(PROMETHEUS, EXPORTER, "GET /metrics"),
        ),
    ),
}
HEAD: Final = """# Who says what to whom

`./task gen` writes this page; do not edit it by hand. Senders and receivers on the bus come from the tables
by which NATS permits them. The stories are those that `./task demo` shows.

A solid arrow is a call, or a watch. A dashed arrow goes over the bus: a state from its owner to a service
that follows it, a question, or an answer. A note is a fact that its owner publishes for all subscribers
([events.md](events.md)).
"""


def lines(steps: tuple[Step, ...]) -> Iterator[str]:
    """Yield the lines of a diagram.

    Raises:
        SystemExit: A service may not do what a step says; names both.
    """
    for step in steps:
        match step:
            case Call():
                yield f"{_id(step.sender)}->>{_id(step.receiver)}: {step.text}"
            case Fact():
                yield f"Note over {_id(EVENTS[step.kind])}: {_name(step.kind)}"
            case Stored():
                for reader in step.readers:
                    _require(step.kind in READS[reader], reader, step.kind)
                    yield f"{_id(STATES[step.kind])}-->>{_id(reader)}: {_name(step.kind)}"
            case Asked():
                (asker,) = ASKED_BY[step.kind]
                yield f"{_id(asker)}-->>{_id(REQUESTS[step.kind][0])}: {_name(step.kind)}"
            case Answered():
                answerer, replies = REQUESTS[step.kind]
                _require(step.reply in replies, answerer, step.reply)
                (asker,) = ASKED_BY[step.kind]
                yield f"{_id(answerer)}-->>{_id(asker)}: {_name(step.reply)}"


def _require(is_so: bool, service: str, kind: type) -> None:  # noqa: FBT001 - what is to be so.
    if not is_so:
        raise SystemExit(f"tools/gen_stories.py: {service} has nothing to do with {kind.__name__}")


def _id(who: str) -> str:
    return who.replace("-", "_").replace(" ", "_")


def _name(kind: type[Event] | type[State] | type[Request] | type[Reply]) -> str:
    return tag_of(kind).rpartition(".")[2]


def _actors(steps: tuple[Step, ...]) -> list[str]:
    """Return who takes part: people and Slurm at the left, Kubernetes at the right."""
    order = [USER, PROMETHEUS, SLURM, NODE, GATEWAY, SYNCER, EXPORTER, SCHEDULER, CONTROLLER, KUBERNETES]
    text = "\n".join(lines(steps))
    return [actor for actor in order if _id(actor) in text]


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, (text, steps) in STORIES.items():
        actors = "".join(f"    participant {_id(actor)} as {actor}\n" for actor in _actors(steps))
        arrows = "".join(f"    {line}\n" for line in lines(steps))
        parts.append(f"\n## {title}\n\n{text}\n\n```mermaid\nsequenceDiagram\n{actors}{arrows}```\n")
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle({PAGE: page()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
