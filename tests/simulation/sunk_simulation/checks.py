"""What must never happen, as functions over what the servers hold; none looks into a service."""

from typing import Final, TypeVar

from sunk_events import subjects
from sunk_events.base import Event, State
from sunk_events.codec import decode_event, decode_state
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockLocked, LockPending, LockState, LockUnlocked
from sunk_events.nodes import NodeDrained, NodeRemoved, NodeUndrained, SlurmNodeState
from sunk_events.placements import PlacementBound, PlacementEnded, PlacementState
from sunk_runtime.fencing import FENCE_HEADER
from sunk_simulation.bus import headers
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.slurm.model import ModelSlurm
from sunk_simulation.slurm.records import JobRecord
from sunk_simulation.slurm.scripts import PLACEHOLDER
from sunk_simulation.slurm.slurmrestd import SERVICE_USER

OLD_S: Final = 150
"""No write rests on what was read so long ago, be its process paused or its link held meanwhile. Slurm cannot
compare, so a younger drain of another's may be met by a drain that was under way; and if there was one of
ours so lately, by the lifting of that."""
KNOWN_S: Final = 60
"""A job that is younger may have the number of one that Slurm has lost."""
_OURS: Final = "k8s:"


class SlurmChecks:
    """What services may not do to Slurm. People use commands, services slurmrestd."""

    def __init__(self, slurm: ModelSlurm, *, old_s: float = OLD_S) -> None:
        self._slurm = slurm
        self._old_s = old_s
        self._by_hand: dict[str, tuple[str, int]] = {}
        """Drains of others: their reason, and since when."""
        self._ours: dict[str, None] = {}
        self._ours_ended: dict[str, int] = {}
        """When a drain of ours was there last."""
        self._wrong: str | None = None
        slurm.on_node_touched = self._node_touched
        slurm.on_node_deleted = self._node_deleted
        slurm.on_job_touched = self._job_touched

    def drain_of_another_is_changed(self) -> str | None:
        """No drain that was set by hand is lifted, nor its reason replaced, nor its record deleted."""
        for node in [node for node in self._by_hand if node not in self._slurm.state.nodes]:
            del self._by_hand[node]  # Slurm has lost it.
        return self._wrong

    def forget_what_slurm_lost(self) -> None:
        """Take note that slurmctld died: what it had not saved nobody has done."""
        nodes = self._slurm.state.nodes
        for node in [node for node in self._by_hand if node not in nodes or not self._is_there(node)]:
            del self._by_hand[node]

    def _node_touched(self, node: str, states: list[str], user: str, reason: str) -> None:
        now = self._slurm.now()
        # prolog.sh uses commands as people do, who do not begin with our word.
        is_ours = user == SERVICE_USER or ("DRAIN" in states and reason.startswith(_OURS))
        if not is_ours:
            self._by_hand.pop(node, None)
            if "DRAIN" in states:
                self._by_hand[node] = (reason, now)
                self._end_ours(node)
            return
        if states and node in self._by_hand and not self._is_there(node):
            theirs, since = self._by_hand.pop(node)
            is_race = now - since <= self._old_s and (
                "DRAIN" in states or now - self._ours_ended.get(node, -OLD_S) <= self._old_s
            )
            if not is_race:
                self._wrong = f"{node} was drained by hand for {theirs!r}; {user} set {states}: {reason!r}"
        if "DRAIN" in states:
            self._ours[node] = None
        elif states:
            self._end_ours(node)

    def _node_deleted(self, node: str, user: str) -> None:
        if node not in self._by_hand:
            return
        is_there, (theirs, since) = self._is_there(node), self._by_hand.pop(node)
        if is_there and user == SERVICE_USER and self._slurm.now() - since > self._old_s:
            self._wrong = f"{node} was drained by hand for {theirs!r}; {user} deleted its record"

    def _end_ours(self, node: str) -> None:
        if node in self._ours:
            del self._ours[node]
            self._ours_ended[node] = self._slurm.now()

    def _is_there(self, node: str) -> bool:
        record, (reason, _) = self._slurm.state.nodes[node], self._by_hand[node]
        return "DRAIN" in record.flags and record.reason.startswith(reason)

    def _job_touched(self, job: JobRecord, how: str, user: str) -> None:
        if user != SERVICE_USER or PLACEHOLDER in job.script:
            return
        # A job whose prolog was lost with its slurmd would wait for ever.
        if how == "cancel" or (how == "requeue" and job.reason != "Prolog"):
            self._wrong = f"{user} did {how} job {job.job_id} of {job.user_id}, which is no placeholder"


class BusChecks:
    """What may not be on the bus."""

    def __init__(self, nats: ModelNats) -> None:
        self._nats = nats
        self._looked: dict[str, int] = {}
        self._tokens: dict[str, dict[str, int]] = {}
        """Of each subject, by stream."""

    def older_leader_writes(self) -> str | None:
        """No leader writes upon what a later one has written."""
        for name, stream in self._nats.store.streams.items():
            before, tokens = self._looked.get(name, 0), self._tokens.setdefault(name, {})
            if stream.last_seq == before:
                continue
            if stream.last_seq < before:  # It went back, or is new; those of other streams go on growing.
                before = 0
                tokens.clear()
            for seq in range(before + 1, stream.last_seq + 1):
                message = stream.messages.get(seq)
                token = headers.parse(message.headers).get(FENCE_HEADER) if message else None
                if message is None or token is None or not name.startswith("KV_"):
                    continue
                if int(token) < tokens.get(message.subject, 0):
                    return f"{message.subject} was written with token {token} after a later one"
                tokens[message.subject] = int(token)
            self._looked[name] = stream.last_seq
        return None


class JobChecks:
    """What the bus may not tell of jobs."""

    def __init__(self, nats: ModelNats, slurm: ModelSlurm, cluster: str) -> None:
        self._nats = nats
        self._slurm = slurm
        self._stream = subjects.bucket_stream(subjects.bucket(cluster, SlurmJobState))
        self._looked = 0

    def living_job_is_forgotten(self) -> str | None:
        """No job is forgotten that Slurm has had for a while, and has not ended."""
        stream = self._nats.store.streams.get(self._stream)
        if stream is None or stream.last_seq <= self._looked:
            self._looked = stream.last_seq if stream else 0
            return None
        first, self._looked = self._looked + 1, stream.last_seq
        for seq in range(first, stream.last_seq + 1):
            message = stream.messages.get(seq)
            if message is None or message.data or b"KV-Operation" not in message.headers:
                continue
            job = self._slurm.state.jobs.get(int(message.subject.rpartition(".")[2]))
            if job is not None and not job.is_over and self._slurm.now() - job.submit_time > KNOWN_S:
                return f"job {job.job_id} is {job.base}, and was forgotten"
        return None


def differs(nats: ModelNats, slurm: ModelSlurm, cluster: str) -> str | None:
    """Return how the bus tells otherwise of nodes and jobs than Slurm has them."""
    ctld = slurm.ctld
    if ctld is None:
        return "slurmctld is away"
    nodes = {one.node: (one.is_drain, one.is_down, one.reason) for one in _nodes(nats, cluster)}
    has = {
        name: ("DRAIN" in node.flags, node.base == "DOWN", node.reason)
        for name, node in ctld.nodes.all.items()
    }
    if nodes != has:
        return f"Slurm has {has}, the bus tells {nodes}"
    jobs = {job.job: job.state for job in _jobs(nats, cluster) if not job.is_over}
    alive = {job.job_id: job.base for job in ctld.jobs.all.values() if not job.is_over}
    return None if jobs == alive else f"Slurm has jobs {alive}, the bus tells {jobs}"


def facts_without_state(nats: ModelNats, cluster: str) -> str | None:
    """Return whose last fact, of a drain, a lock or a placement, is not what its state says."""
    drained: dict[str, bool] = {}
    locks: dict[str, str] = {}
    placed: dict[str, type[Event]] = {}
    stream = nats.store.streams.get(subjects.fact_stream(cluster))
    for message in stream.messages.values() if stream else ():
        event = decode_event(message.data)
        match event:
            case NodeDrained() | NodeUndrained():
                drained[event.subject] = isinstance(event, NodeDrained)
            case NodeRemoved():
                drained.pop(event.subject, None)  # Who registers later is another one.
            case LockPending() | LockLocked() | LockUnlocked():
                locks[event.subject] = event.data.lock
            case PlacementBound() | PlacementEnded():
                placed[event.subject] = type(event)
            case _:
                pass
    for node in _nodes(nats, cluster):
        if drained.get(node.node, node.is_drain) != node.is_drain and not node.is_busy:
            return (
                f"the last fact of {node.node} says drained={drained[node.node]}, its state {node.is_drain}"
            )
    for lock in _states(nats, cluster, LockState):
        if locks.get(lock.node, lock.lock) != lock.lock:
            return f"the last fact of {lock.node} says lock={locks[lock.node]}, its state {lock.lock}"
    known = {one.uid for one in _states(nats, cluster, PlacementState)}
    lost = [uid for uid, kind in placed.items() if kind is PlacementBound and uid not in known]
    return f"the last fact of {lost[0]} is that it was bound, and it has no state" if lost else None


def _nodes(nats: ModelNats, cluster: str) -> list[SlurmNodeState]:
    return _states(nats, cluster, SlurmNodeState)


def _jobs(nats: ModelNats, cluster: str) -> list[SlurmJobState]:
    return _states(nats, cluster, SlurmJobState)


S = TypeVar("S", bound=State)


def _states(nats: ModelNats, cluster: str, kind: type[S]) -> list[S]:
    bucket = subjects.bucket_stream(subjects.bucket(cluster, kind))
    return [decode_state(kind, data) for data in _last(nats, bucket)]


def _last(nats: ModelNats, name: str) -> list[bytes]:
    stream = nats.store.streams.get(name)
    return [message.data for message in stream.messages.values() if message.data] if stream else []
