"""The Pods in the way on one Node: found, told apart, and made to leave."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from sunk_events.requests import BlockingPod
from sunk_kube.pods import Pod
from sunk_nodeset_controller.adapters.daemonset_view import Daemons, DaemonSetView
from sunk_nodeset_controller.lock_controller.job_confirmer import Confirm
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.requests import LockRequests
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.blockers import blocking
from sunk_nodeset_controller.locks.eviction import EvictionAttempt, evictions, refusals, unreported
from sunk_nodeset_controller.locks.eviction_events import eviction_event
from sunk_nodeset_controller.locks.holders import alive, known_to_run, to_confirm
from sunk_nodeset_controller.locks.metrics import PODS_DRIVEN
from sunk_nodeset_controller.locks.model import Blockers, LockRequest, Rules, Seen
from sunk_nodeset_controller.locks.pods_in_the_way import blockers
from sunk_runtime.clock import now


class Turn(msgspec.Struct, frozen=True):
    """What one turn is about."""

    node: str
    kube_node: str
    lock_requests: LockRequests
    requests: tuple[LockRequest, ...]
    """Those that came before any Pod was looked at."""


class Evictor:
    """Looks at the Pods of Nodes that are locked, and has them leave."""

    def __init__(
        self,
        snapshotter: LockSnapshotter,
        nodes: NodeLockStore,
        rules: Rules,
        *,
        confirm: Confirm,
        daemonsets: DaemonSetView,
    ) -> None:
        self._snapshotter = snapshotter
        self._nodes = nodes
        self._rules = rules
        self._confirm = confirm
        self._daemonsets = daemonsets

    async def find(self, turn: Turn, seen: Seen) -> tuple[list[Pod], tuple[BlockingPod, ...]]:
        """Return the Pods in the way, and what is reported of them; none is evicted."""
        pods = await self._nodes.pods_on(turn.kube_node)
        placed = self._nodes.measure.with_claims(pods, self._snapshotter.job_by_uid(pods))
        daemons = await self._daemons(pods, placed)
        others, unheard, _ = await self._in_the_way(turn, seen, pods, placed, daemons)
        return others, self._blocking_pods(turn, others, placed, unheard, daemons)

    async def look(self, turn: Turn, seen: Seen, *, does_clear: bool = True) -> Blockers:
        """Return the Pods in the way, as they are now; have them leave if that is wanted."""
        pods, lock_requests = await self._nodes.pods_on(turn.kube_node), turn.lock_requests
        placed = self._nodes.measure.with_claims(pods, self._snapshotter.job_by_uid(pods))
        daemons = await self._daemons(pods, placed)
        others, unheard, unasked = await self._in_the_way(turn, seen, pods, placed, daemons)
        if not does_clear:  # Drained for them, their node would take none of their jobs.
            returning = self._snapshotter.returning(others)
            others = [pod for pod in others if pod.metadata.uid not in returning]
        found = blockers(others)
        lock_requests.looked(found, now())
        # Of a Node that is another's by now, the Pods are that one's.
        if does_clear and not self._snapshotter.successor(turn.node, turn.kube_node):
            known = [pod for pod in others if pod.metadata.uid not in daemons.unknown]
            ours = [pod for pod in known if self._nodes.measure.may_evict(pod)]
            await self._drive_out(turn, seen, ours, placed)
            _count_driven(
                lock_requests,
                {pod.metadata.uid for pod in known} - placed.keys() - lock_requests.attempts.keys(),
            )
        blocking_pods = self._blocking_pods(turn, others, placed, unheard, daemons)
        is_unheard = bool(unheard or daemons.unknown)
        return replace(found, blocking=blocking_pods, is_unheard=is_unheard, unasked=unasked)

    async def _daemons(self, pods: list[Pod], placed: Mapping[str, int | None]) -> Daemons:
        """Return which of *pods* are a DaemonSet's, where that lets them stay."""
        return await self._daemonsets.judge(self._nodes.measure.daemon_claims(pods, placed))

    async def _in_the_way(
        self,
        turn: Turn,
        seen: Seen,
        pods: list[Pod],
        placed: Mapping[str, int | None],
        daemons: Daemons,
    ) -> tuple[list[Pod], frozenset[int], frozenset[int]]:
        """Return those of *pods* that are in the way, and jobs of the others.

        First those of which nobody says whether they run, then those of which nobody was asked. What the bus
        says of a job may be of before its end: nobody is granted a lock for that alone.
        """
        measure, living = self._nodes.measure, alive(seen, self._rules)
        others = measure.others(pods, placed, living, daemons.proven)
        keeping_pods = measure.keeping_pods(pods, placed, living)
        doubted = to_confirm(seen, keeping_pods, blockers(others), self._rules)
        unasked = keeping_pods - doubted - known_to_run(seen, self._rules)
        if not doubted:
            return others, frozenset(), unasked
        running = await self._confirm(turn.node, self._snapshotter.submitted(placed, doubted))
        if running is None:
            return measure.others(pods, placed, living - doubted, daemons.proven), doubted, unasked
        living -= doubted - running
        return measure.others(pods, placed, living, daemons.proven), frozenset(), unasked

    async def _drive_out(
        self, turn: Turn, seen: Seen, others: list[Pod], placed: Mapping[str, int | None]
    ) -> None:
        """Have *others* leave the Node, and remember who would not."""
        uids, lock_requests = {pod.metadata.uid for pod in others}, turn.lock_requests
        lock_requests.attempts = {
            uid: attempt for uid, attempt in lock_requests.attempts.items() if uid in uids
        }
        clearing = self._nodes.measure.clearing
        planned = evictions(
            others, placed=placed, attempts=lock_requests.attempts, clearing=clearing, now=now()
        )
        reported = await self._nodes.report(
            [
                (eviction.pod, eviction_event(eviction, turn.kube_node, seen.lock.holders, clearing))
                for eviction in unreported(planned, lock_requests.attempts)
            ]
        )
        for eviction in planned:
            uid, tried = eviction.pod.metadata.uid, now()
            because = await self._nodes.carry_out(eviction)
            before = lock_requests.attempts.get(uid) or EvictionAttempt(since=tried, tried=tried)
            lock_requests.attempts[uid] = EvictionAttempt(
                since=before.since,
                tried=tried,
                because=because,
                reported=eviction.how if uid in reported else before.reported,
            )

    @staticmethod
    def _blocking_pods(
        turn: Turn,
        others: list[Pod],
        placed: Mapping[str, int | None],
        unheard: frozenset[int],
        daemons: Daemons,
    ) -> tuple[BlockingPod, ...]:
        return blocking(
            others,
            refused=refusals(turn.lock_requests.attempts),
            placed=placed,
            unheard=unheard,
            undecided=daemons.unknown,
            now=now(),
        )


def _count_driven(lock_requests: LockRequests, uids: set[str]) -> None:
    """Count the Pods that the taint drives out, each once."""
    PODS_DRIVEN.labels("taint", "ok").inc(len(uids - lock_requests.driven))
    lock_requests.driven = frozenset(uids)
