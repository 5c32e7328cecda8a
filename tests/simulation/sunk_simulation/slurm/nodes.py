"""What slurmctld does with nodes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sunk_simulation.slurm import errors
from sunk_simulation.slurm.errors import SlurmError
from sunk_simulation.slurm.records import JobRecord, NodeRecord, PartitionRecord
from sunk_simulation.slurm.select import names_of

if TYPE_CHECKING:
    from sunk_simulation.slurm.slurmctld import Slurmctld
    from sunk_simulation.slurm.slurmd import Registration

NOT_RESPONDING: Final = "Not responding"
_REFUSED_WHILE: Final = frozenset({"UNKNOWN"})
_STATES: Final = frozenset({"DRAIN", "UNDRAIN", "RESUME", "IDLE", "DOWN", "FAIL", "POWER_UP", "POWER_DOWN"})


class Nodes:
    """The nodes of one slurmctld."""

    def __init__(self, ctld: "Slurmctld") -> None:
        self._ctld = ctld

    @property
    def all(self) -> dict[str, NodeRecord]:
        """Return them by name."""
        return self._ctld.state.nodes

    def get(self, name: str) -> NodeRecord:
        """Return a node.

        Raises:
            SlurmError: there is none.
        """
        if name not in self.all:
            raise SlurmError(errors.INVALID_NODE_NAME)
        return self.all[name]

    def jobs_on(self, name: str) -> list[JobRecord]:
        """Return the jobs that hold anything of it, those that complete included."""
        jobs = self._ctld.state.jobs.values()
        return [job for job in jobs if name in job.completing or (job.is_active and name in job.nodes)]

    def words(self, node: NodeRecord) -> list[str]:
        """Return its state as slurmrestd has it."""
        jobs, flags = self.jobs_on(node.name), set(node.flags)
        base = node.base
        if any(node.name in job.completing for job in jobs):
            flags.add("COMPLETING")
        if base == "IDLE" and any(job.base == "RUNNING" and not job.is_completing for job in jobs):
            base = "ALLOCATED"
        return [base, *sorted(flags)]

    def count(self) -> None:
        """Count anew what is allocated: slurmctld does that for a list of all nodes only."""
        for node in self.all.values():
            on_it = [job for job in self.jobs_on(node.name) if job.base != "SUSPENDED"]
            held = [job.held[node.name] for job in on_it if not job.is_completing]
            node.counted = (
                sum(one.cpus for one in held),
                sum(one.memory for one in held),
                sum(one.gpus for one in held),
            )

    def in_partition(self, partition: PartitionRecord) -> list[NodeRecord]:
        """Return its nodes."""
        if partition.nodes == "ALL":
            return list(self.all.values())
        return [self.all[name] for name in names_of(partition.nodes) if name in self.all]

    def recover(self) -> None:
        """Begin with those of slurm.conf, and with what was saved of them; nobody has registered yet."""
        ctld = self._ctld
        for conf in ctld.slurm.static_nodes:
            if conf.name not in self.all:
                self.all[conf.name] = NodeRecord(
                    conf.name,
                    cpus=conf.cpus,
                    real_memory=conf.real_memory,
                    gpus=conf.gpus,
                    address=conf.address,
                    has_slurmd=conf.has_slurmd,
                    base="UNKNOWN" if conf.has_slurmd else "IDLE",
                    flags=set() if conf.has_slurmd else {"CLOUD", "POWERED_DOWN"},
                )
        for partition in ctld.conf.partitions:
            if partition.name not in ctld.state.partitions:
                ctld.state.partitions[partition.name] = PartitionRecord(
                    partition.name, partition.nodes, partition.priority_tier, partition.grace_time_s
                )
        for node in self.all.values():
            node.last_response = ctld.now()
            if node.has_slurmd:
                node.flags.discard("NOT_RESPONDING")
                if node.base != "DOWN":
                    node.base = "UNKNOWN"
                ctld.ask_registration(node.name)

    def register(self, told: "Registration") -> None:
        """Take what a slurmd says of its node."""
        ctld, is_new = self._ctld, told.name not in self.all
        if is_new:
            if not told.is_dynamic:
                return  # It was deleted: slurmd has to start anew.
            node = self.all[told.name] = NodeRecord(
                told.name, is_static=False, base="IDLE", flags={"DYNAMIC_NORM"}, features=told.features
            )
            node.active_features = told.features
            ctld.partition_changed()
        node = self.all[told.name]
        if not node.is_static:
            node.cpus, node.real_memory, node.gpus = told.cpus, told.real_memory, told.gpus
        node.address = told.address
        node.boot_time, node.slurmd_start_time = told.boot_time, told.slurmd_start_time
        node.last_response = ctld.now()
        node.flags.discard("NOT_RESPONDING")
        if node.base == "UNKNOWN":
            node.base = "IDLE"
        elif node.base == "DOWN" and self._may_return(node):
            node.base = "IDLE"
            if not ctld.conf.is_24_11 and "DRAIN" not in node.flags:
                self._forget_reason(node)
        ctld.node_changed(node)
        ctld.jobs.compare(node, told)
        ctld.scheduling.soon()

    def ping(self, node: NodeRecord) -> None:
        """Ask whether its slurmd is there."""
        ctld = self._ctld
        if ctld.send(node.name, "ping"):
            node.last_response = ctld.now()
            if "NOT_RESPONDING" in node.flags:
                node.flags.discard("NOT_RESPONDING")
                ctld.node_changed(node)
            if node.base == "UNKNOWN" or (node.base == "DOWN" and self._may_return(node)):
                ctld.ask_registration(node.name)
            ctld.jobs.terminate_again(node.name)
            return
        timeout = ctld.conf.slurmd_timeout_s
        if timeout and node.base != "DOWN" and ctld.now() - node.last_response > timeout:
            self.set_down(node, NOT_RESPONDING, "slurm")
            node.flags.add("NOT_RESPONDING")
            ctld.node_changed(node)
        else:
            ctld.later(10.0, self.note_silence, node.name)

    def note_silence(self, name: str) -> None:
        """Take note that a node has not answered."""
        node = self.all.get(name)
        if node is None or self._ctld.slurm.hears(name) or "NOT_RESPONDING" in node.flags:
            return
        node.flags.add("NOT_RESPONDING")
        self._ctld.node_changed(node)

    def set_down(self, node: NodeRecord, reason: str, user: str) -> None:
        """Set it DOWN, and end what runs there."""
        node.base = "DOWN"
        if reason == NOT_RESPONDING and node.reason:
            reason = node.reason if NOT_RESPONDING in node.reason else f"{node.reason} : {reason}"
        self._set_reason(node, reason, user)
        self._ctld.jobs.node_is_down(node.name)
        self._ctld.node_changed(node)

    def drain(self, node: NodeRecord, reason: str, user: str) -> None:
        """Set DRAIN, as slurmctld does itself; a drain that is there stays as it is."""
        if "DRAIN" not in node.flags:
            node.flags.add("DRAIN")
            self._set_reason(node, reason, user)
            self._ctld.node_changed(node)

    def drain_named(self, name: str, reason: str) -> None:
        """Drain a node, if there is one, as slurmctld does itself."""
        if name in self.all:
            self.drain(self.all[name], reason, "slurm")

    def update(self, name: str, change: Mapping[str, Any], user: str) -> None:
        """Change a node, and do what can be done of it also where the rest is refused.

        Raises:
            SlurmError: something of it was refused.
        """
        node, reason = self.get(name), change.get("reason")
        words = [str(word).upper() for word in change.get("state") or ()]
        if unknown := [word for word in words if word not in _STATES]:
            refused = SlurmError(errors.INVALID_VALUE, f"Unknown node state: {unknown[0]}")
        else:
            refused = None
        for field in ("extra", "comment"):
            if change.get(field) is not None:
                setattr(node, field, str(change[field]))
        self._update_features(node, change)
        known = [word for word in words if word in _STATES]
        if not known and reason is not None:
            may_be_there = "DRAIN" in node.flags or node.base == "DOWN"
            if may_be_there or self._ctld.conf.is_24_11:
                self._set_reason(node, str(reason), user)
        for word in known:
            self._set_state(node, word, reason, user)
        self._ctld.node_changed(node)
        self._ctld.slurm.nodes_touched(node.name, words, user, node.reason)
        self._ctld.scheduling.soon()
        if refused is not None:
            raise refused

    def create(self, name: str, state: str) -> None:
        """Make a record of a node that has no slurmd yet."""
        flags = {"DYNAMIC_NORM"} | ({"CLOUD", "POWERED_DOWN"} if state == "CLOUD" else set[str]())
        base = "IDLE" if state == "CLOUD" else "FUTURE"
        self.all[name] = node = NodeRecord(name, is_static=False, has_slurmd=False, base=base, flags=flags)
        self._ctld.partition_changed()
        self._ctld.node_changed(node)

    def delete(self, expression: str, user: str) -> None:
        """Delete the records of dynamic nodes, as many as it can be done of.

        Raises:
            SlurmError: of one of them it could not.
        """
        refused: list[SlurmError] = []
        for name in names_of(expression):
            try:
                self._check_deletion(name)
            except SlurmError as error:
                refused.append(error)
                continue
            self._ctld.slurm.on_node_deleted(name, user)
            del self.all[name]
            self._ctld.tell("node is deleted", node=name)
            self._ctld.nodes_changed = self._ctld.now()
            self._ctld.partition_changed()
        if refused:
            known = [one for one in refused if one.number != errors.INVALID_NODE_NAME]
            raise (known or refused)[0]

    def _check_deletion(self, name: str) -> None:
        if self.get(name).is_static:
            raise SlurmError(errors.INVALID_NODE_STATE)
        if self.jobs_on(name):
            raise SlurmError(errors.NODE_BUSY)

    def _set_state(self, node: NodeRecord, word: str, reason: str | None, user: str) -> None:
        match word:
            case "DRAIN" | "FAIL":
                node.flags.add(word)
                self._set_reason(node, node.reason if reason is None else reason, user)
            case "DOWN":
                self.set_down(node, node.reason if reason is None else reason, user)
                if self._ctld.slurm.hears(node.name) and self._may_return(node):
                    self._ctld.ask_registration(node.name)
            case "UNDRAIN":
                self._undrain(node, reason, user)
            case "RESUME" | "IDLE":
                self._resume(node)
            case _:
                raise SlurmError(errors.INVALID_NODE_STATE)

    def _undrain(self, node: NodeRecord, reason: str | None, user: str) -> None:
        if node.base in _REFUSED_WHILE:
            raise SlurmError(errors.INVALID_NODE_STATE)
        was_drain = not node.flags.isdisjoint({"DRAIN", "FAIL"})
        node.flags -= {"DRAIN", "FAIL"}
        if self._ctld.conf.is_24_11:
            if reason is not None:
                self._set_reason(node, reason, user)
        else:
            self._forget_reason(node)
        if was_drain and node.base != "DOWN":
            self._unheard(node)

    def _resume(self, node: NodeRecord) -> None:
        if node.base != "DOWN" and node.flags.isdisjoint({"DRAIN", "FAIL"}):
            is_old = self._ctld.conf.is_24_11
            raise SlurmError(errors.INVALID_NODE_STATE if is_old else errors.INVALID_NODE_TRANSITION)
        node.base = "IDLE"
        node.flags -= {"DRAIN", "FAIL"}
        if not self._ctld.conf.is_24_11:
            self._forget_reason(node)
        node.last_response = self._ctld.now()
        self._unheard(node)

    def _unheard(self, node: NodeRecord) -> None:
        """Have it be silent until it has answered once more."""
        if node.has_slurmd:
            node.flags.add("NOT_RESPONDING")
            self._ctld.later(self._ctld.random.uniform(0.1, 0.9), self._ping_again, node.name)

    def _ping_again(self, name: str) -> None:
        if (node := self.all.get(name)) is not None:
            self.ping(node)
            self._ctld.scheduling.soon()

    def _update_features(self, node: NodeRecord, change: Mapping[str, Any]) -> None:
        available, active = _features(change, "features"), _features(change, "features_act")
        if available is not None and active is None and not set(node.active_features) <= set(available):
            raise SlurmError(errors.ACTIVE_FEATURE)
        if available is not None:
            node.features = available
        if active is not None:
            if not set(active) <= set(node.features):
                raise SlurmError(errors.ACTIVE_FEATURE)
            node.active_features = active

    def _may_return(self, node: NodeRecord) -> bool:
        match self._ctld.conf.return_to_service:
            case 0:
                return False
            case 1:
                return node.reason.endswith(NOT_RESPONDING)
            case _:
                return True

    def _set_reason(self, node: NodeRecord, reason: str, user: str) -> None:
        node.reason, node.reason_user = reason, user
        node.reason_time = self._ctld.now()

    def _forget_reason(self, node: NodeRecord) -> None:
        node.reason, node.reason_user, node.reason_time = "", "", 0


def _features(change: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return features that are given; None where an empty list says that there is nothing to change."""
    given = change.get(name)
    return tuple(word for word in given if word) if given else None
