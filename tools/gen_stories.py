"""Writes `docs/stories.md` and its drawings: who says what to whom, as sequence diagrams and as tables.

What stands on the wire comes from the code: subjects and receivers from the contract's tables, paths of the
hook gateway from its route table, calls of Slurm and Kubernetes from the clients (`calls.py`). A step that no
service may take ends the generator. ``--check`` as in `gen_schemas.py`.
"""

import sys
from pathlib import Path
from typing import Final

import msgspec
from calls import kube_calls, slurm_calls
from drawings import Message, sequence
from generated import settle

from sunk_events import subjects
from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.codec import tag_of
from sunk_events.jobs import JobEnded, SlurmJobState
from sunk_events.locks import LockLocked, LockPending, LockState, LockUnlocked
from sunk_events.nodes import NodeDrained, NodeUndrained, SlurmNodeState, SlurmPartitionState
from sunk_events.nodesets import KubePodState, NodeCordoned, NodeUncordoned
from sunk_events.permissions import READS, REQUESTED_BY, Service, user_name
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
from sunk_hook_gateway.http.routes import ENDPOINTS, Endpoint

PAGE: Final = Path("docs/stories.md")
PICTURES: Final = Path("docs/pictures/stories")
USER: Final = "a user"
KUBERNETES: Final = "Kubernetes"
SLURM: Final = "Slurm"
NODE: Final = "slurmd"
PROMETHEUS: Final = "Prometheus"
_CLUSTER: Final = "CLUSTER"
"""Stands for the name of a Slurm cluster until it is in braces, which a subject would escape."""


class Call(msgspec.Struct, frozen=True):
    """What people do, and what Slurm and Kubernetes do by themselves."""

    sender: str
    receiver: str
    text: str


class ToSlurm(msgspec.Struct, frozen=True):
    """A service calls slurmrestd."""

    sender: Service
    call: str
    """One of `slurm_calls`."""
    text: str


class ToKube(msgspec.Struct, frozen=True):
    """A service calls the API server."""

    sender: Service
    call: str
    """One of `kube_calls`."""
    text: str


class Watched(msgspec.Struct, frozen=True):
    """A watch tells a service of a change."""

    receiver: Service
    call: str
    text: str


class Hooked(msgspec.Struct, frozen=True):
    """A script on a compute node calls the hook gateway."""

    endpoint: str
    text: str


class HookAnswered(msgspec.Struct, frozen=True):
    """The hook gateway answers it."""

    endpoint: str
    status: int
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


Step = Call | ToSlurm | ToKube | Watched | Hooked | HookAnswered | Fact | Stored | Asked | Answered


class Story(msgspec.Struct, frozen=True):
    """A heading of the page, with its drawing."""

    file: str
    title: str
    text: str
    steps: tuple[Step, ...]


SYNCER: Final[Service] = "syncer"
CONTROLLER: Final[Service] = "nodeset-controller"
SCHEDULER: Final[Service] = "pod-scheduler"
GATEWAY: Final[Service] = "hook-gateway"
EXPORTER: Final[Service] = "metrics-exporter"
_SUBMITTED: Final = (SYNCER, CONTROLLER, GATEWAY, EXPORTER)
STORIES: Final[tuple[Story, ...]] = (
    Story(
        "cordon",
        "A cordon drains the Slurm node",
        "An uncordon goes the same way, and ends the drain.",
        (
            Call(USER, KUBERNETES, "kubectl cordon"),
            Watched(CONTROLLER, "watch Nodes", "the Node is unschedulable"),
            Fact(NodeCordoned),
            Stored(KubePodState, (SYNCER,)),
            ToSlurm(SYNCER, "look at a node", "read the node"),
            ToSlurm(SYNCER, "drain", "drain it, with a reason that begins with k8s: cordon"),
            Fact(NodeDrained),
            Stored(SlurmNodeState, (CONTROLLER, EXPORTER)),
            ToKube(CONTROLLER, "patch a Pod's status", "SlurmDrain on the Pod"),
            Call(USER, KUBERNETES, "kubectl uncordon"),
            Watched(CONTROLLER, "watch Nodes", "the Node is schedulable"),
            Fact(NodeUncordoned),
            Stored(KubePodState, (SYNCER,)),
            ToSlurm(SYNCER, "undrain", "end the drain, if its reason is still the syncer's"),
            Fact(NodeUndrained),
        ),
    ),
    Story(
        "drain",
        "A drain in Slurm shows on the Pod and the Node",
        "Slurm does not report a drain, so the syncer reads slurmctld's counters twice a second.",
        (
            Call(USER, SLURM, "scontrol update state=drain"),
            ToSlurm(SYNCER, "read the counters", "read the counters"),
            ToSlurm(SYNCER, "list nodes", "read the nodes, because a counter has changed"),
            Fact(NodeDrained),
            Stored(SlurmNodeState, (CONTROLLER, EXPORTER)),
            ToKube(CONTROLLER, "patch a Pod's status", "SlurmDrain on the Pod"),
            ToKube(CONTROLLER, "patch a Node's status", "SlurmCordon on the Node"),
        ),
    ),
    Story(
        "lock",
        "A job gets its Node for itself",
        "`lock_pending` and the second question come only if Pods have to leave ([locks.md](locks.md)).",
        (
            Call(USER, SLURM, "sbatch"),
            Call(SLURM, NODE, "run the prolog of the job"),
            Hooked("prehook", "prolog.sh: may the job start?"),
            Asked(AcquireLock),
            ToKube(CONTROLLER, "patch a Node", "annotation and taint on the Node"),
            Fact(LockPending),
            Answered(AcquireLock, LockWaiting),
            Stored(LockState, (GATEWAY, EXPORTER)),
            Call(KUBERNETES, CONTROLLER, "the other Pods are gone"),
            Fact(LockLocked),
            Stored(LockState, (GATEWAY, EXPORTER)),
            Asked(AcquireLock),
            Answered(AcquireLock, LockGranted),
            HookAnswered("prehook", 200, "200: it is locked"),
            Call(NODE, NODE, "the job's script runs"),
            Hooked("release", "epilog.sh: the job is over"),
            Asked(ReleaseLock),
            Answered(ReleaseLock, Noted),
            ToKube(CONTROLLER, "patch a Node", "remove annotation and taint"),
            Fact(LockUnlocked),
        ),
    ),
    Story(
        "unlock",
        "A job is over, and its Node is unlocked",
        "If no epilog calls, for example because the node has lost its power, the lock ends when Slurm says "
        "that the job is over.",
        (
            ToSlurm(SYNCER, "read the counters", "read the counters"),
            ToSlurm(SYNCER, "list job states", "list the jobs' states, because a counter has changed"),
            ToSlurm(SYNCER, "look at a job", "look at the job whose state is new"),
            Fact(JobEnded),
            Stored(SlurmJobState, (CONTROLLER, EXPORTER)),
            ToKube(CONTROLLER, "patch a Node", "no job needs the lock: remove annotation and taint"),
            Fact(LockUnlocked),
            Stored(LockState, (GATEWAY, EXPORTER)),
        ),
    ),
    Story(
        "place",
        "A Pod runs where Slurm decides",
        "The placeholder's prolog locks the Node, as above. All phases: [placements.md](placements.md).",
        (
            Call(USER, KUBERNETES, "create a Pod with schedulerName: sunk-scheduler"),
            Watched(SCHEDULER, "watch Pods", "the Pod"),
            ToSlurm(SCHEDULER, "submit", "submit the placeholder job, held"),
            ToKube(SCHEDULER, "patch a Pod", "write the job's number on the Pod"),
            Fact(PlacementSubmitted),
            Stored(PlacementState, _SUBMITTED),
            ToSlurm(SCHEDULER, "change a job", "release the job"),
            Call(SLURM, NODE, "start it: prolog, then the script"),
            Hooked("job_started", "the script: I run"),
            Asked(PlacementAnnounced),
            Answered(PlacementAnnounced, Noted),
            Fact(PlacementStarted),
            ToSlurm(SCHEDULER, "change a job", "append ': started' to the job's Extra"),
            ToKube(SCHEDULER, "bind", "bind the Pod to the Node"),
            Fact(PlacementBound),
            Hooked("job_outcome", "the script asks, and waits for the Pod's end"),
            Watched(SCHEDULER, "watch Pods", "the Pod has finished"),
            Fact(PlacementEnded),
            Stored(PlacementState, (GATEWAY,)),
            HookAnswered("job_outcome", 200, "200: end, with the Pod's exit code"),
        ),
    ),
    Story(
        "gang",
        "Four Pods start as a gang",
        "One Slurm job has a node for each of the four Pods. The pod-scheduler binds no Pod before the job "
        "runs on all four nodes and all four are locked ([gangs.md](gangs.md)).",
        (
            Call(USER, KUBERNETES, "create a Job of 4 Pods with schedulerName: sunk-scheduler"),
            Watched(SCHEDULER, "watch Pods", "the first, second and third Pod"),
            ToKube(SCHEDULER, "patch a Pod's status", "each of them: WaitingForGang"),
            Watched(SCHEDULER, "watch Pods", "the fourth Pod"),
            ToSlurm(SCHEDULER, "submit", "submit one job with four nodes, held"),
            ToKube(SCHEDULER, "patch a Pod", "write the job's number on each Pod"),
            Fact(PlacementSubmitted),
            Stored(PlacementState, _SUBMITTED),
            ToSlurm(SCHEDULER, "change a job", "release the job"),
            Call(SLURM, NODE, "start it on four nodes: four prologs"),
            Hooked("prehook", "each prolog: may the job start?"),
            HookAnswered("prehook", 200, "200: the node is locked"),
            Hooked("job_started", "the script, on one of the nodes: I run"),
            Asked(PlacementAnnounced),
            Answered(PlacementAnnounced, Noted),
            Fact(PlacementStarted),
            ToKube(SCHEDULER, "patch a Pod", "each Pod: rank, size, nodes, leader"),
            ToKube(SCHEDULER, "bind", "each Pod: bind it to the Node of its rank"),
            Fact(PlacementBound),
        ),
    ),
    Story(
        "metrics",
        "Prometheus sees all of it",
        "A scrape calls neither Slurm nor Kubernetes.",
        (
            Stored(SlurmNodeState, (EXPORTER,)),
            Stored(SlurmPartitionState, (EXPORTER,)),
            Stored(LockState, (EXPORTER,)),
            Stored(PlacementState, (EXPORTER,)),
            Call(PROMETHEUS, EXPORTER, "GET /metrics"),
        ),
    ),
)
HEAD: Final = """# Who says what to whom

`./task gen` writes this page and its drawings; do not edit them by hand. Subjects, paths, senders and
receivers come from the code, so they are the ones of this version.

Each story has a drawing, and under it a table with the same messages in words.

- A solid arrow is a call, a watch or an answer to a call.
- A dashed arrow goes over the bus: a state from its owner to the services that follow it, a question, or an
  answer.
- A box on a line is a fact that the owner of the line publishes for all subscribers ([events.md](events.md)).
- Names in braces, and `*` in a subject, stand for the real ones. `{version}` is slurmrestd's API version.
"""
SLURM_CALLS: Final = slurm_calls()
KUBE_CALLS: Final = kube_calls()


def messages(steps: tuple[Step, ...]) -> tuple[Message, ...]:
    """Return what is drawn, one message a step.

    Raises:
        SystemExit: A service may not do what a step says; names both.
    """
    return tuple(_message(step) for step in steps)


def _message(step: Step) -> Message:  # noqa: C901, PLR0911 - one case a kind of step
    match step:
        case Call():
            return Message(step.sender, (step.receiver,), step.text)
        case ToSlurm():
            return Message(step.sender, (SLURM,), step.text, SLURM_CALLS[step.call])
        case ToKube():
            return Message(step.sender, (KUBERNETES,), step.text, KUBE_CALLS[step.call])
        case Watched():
            return Message(KUBERNETES, (step.receiver,), step.text, KUBE_CALLS[step.call])
        case Hooked():
            endpoint = _endpoint(step.endpoint)
            return Message(NODE, (GATEWAY,), step.text, f"{endpoint.method} {endpoint.path}")
        case HookAnswered():
            _require(
                step.status in _endpoint(step.endpoint).answers, GATEWAY, f"{step.endpoint} {step.status}"
            )
            return Message(GATEWAY, (NODE,), step.text)
        case Fact():
            wire = subjects.facts(_CLUSTER, step.kind)
            return Message(EVENTS[step.kind], (), _name(step.kind), _braced(wire), "note")
        case Stored():
            for reader in step.readers:
                _require(step.kind in READS[reader], reader, step.kind.__name__)
            wire = subjects.any_key(subjects.bucket(_CLUSTER, step.kind))
            return Message(STATES[step.kind], step.readers, _name(step.kind), _braced(wire), "bus")
        case Asked():
            (asker,) = REQUESTED_BY[step.kind]
            wire = subjects.questions(_CLUSTER, step.kind)
            return Message(asker, (REQUESTS[step.kind][0],), _name(step.kind), _braced(wire), "bus")
        case Answered():
            answerer, replies = REQUESTS[step.kind]
            _require(step.reply in replies, answerer, step.reply.__name__)
            (asker,) = REQUESTED_BY[step.kind]
            wire = f"{subjects.inbox(user_name(asker, _CLUSTER))}.>"
            return Message(answerer, (asker,), _name(step.reply), _braced(wire), "bus")


def _endpoint(name: str) -> Endpoint:
    return next(endpoint for endpoint in ENDPOINTS if endpoint.name == name)


def _require(is_so: bool, service: str, what: str) -> None:  # noqa: FBT001 - what is to be so.
    if not is_so:
        raise SystemExit(f"tools/gen_stories.py: {service} has nothing to do with {what}")


def _braced(subject: str) -> str:
    return subject.replace(_CLUSTER, "{cluster}")


def _name(kind: type[Event] | type[State] | type[Request] | type[Reply]) -> str:
    return tag_of(kind).rpartition(".")[2]


def actors(steps: tuple[Step, ...]) -> list[str]:
    """Return who takes part: people and Slurm at the left, Kubernetes at the right."""
    order = [USER, PROMETHEUS, SLURM, NODE, GATEWAY, SYNCER, EXPORTER, SCHEDULER, CONTROLLER, KUBERNETES]
    there = {actor for message in messages(steps) for actor in (message.sender, *message.receivers)}
    return [actor for actor in order if actor in there]


def table(steps: tuple[Step, ...]) -> str:
    """Return the messages in words, for people who do not see the drawing or look for a subject."""
    rows = [
        f"| {number} | {message.sender} | {', '.join(message.receivers) or 'all subscribers'} | "
        f"{f'`{message.text}`' if message.kind != 'call' else message.text} | "
        f"{f'`{message.wire}`' if message.wire else ''} |\n"
        for number, message in enumerate(messages(steps), 1)
    ]
    return f"| | from | to | what | on the wire |\n|---|---|---|---|---|\n{''.join(rows)}"


def pages() -> dict[Path, str]:
    """Return the page and its drawings."""
    parts, made = [HEAD], dict[Path, str]()
    for story in STORIES:
        file = PICTURES / f"{story.file}.svg"
        made[file] = sequence(story.title, actors(story.steps), messages(story.steps))
        where = file.relative_to(PAGE.parent)
        picture = f"![Sequence diagram: {story.title}. The table below has the same messages.]({where})"
        parts.append(f"\n## {story.title}\n\n{story.text}\n\n{picture}\n\n{table(story.steps)}")
    return {PAGE: "".join(parts), **made}


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle(pages(), arguments, PICTURES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
