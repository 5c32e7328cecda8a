"""One turn of the NodeSet loop: look, plan, carry out, tell."""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import anyio
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.bodies import EventText
from sunk_kube.errors import KubeNotFoundError, KubeRejectedError, KubeUnavailableError
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Condition, condition
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.metrics import SLURM_IS_KNOWN
from sunk_nodeset_controller.missing_rights import missing_right
from sunk_nodeset_controller.nodeset_controller.adoption import Adoption
from sunk_nodeset_controller.nodeset_controller.executor import Done, Executor
from sunk_nodeset_controller.nodeset_controller.name_conflicts import NameConflicts
from sunk_nodeset_controller.nodeset_controller.observer import Observer
from sunk_nodeset_controller.nodeset_controller.revisions import Revisions
from sunk_nodeset_controller.nodesets.model import CreatePod, Observed, Plan, ReleasePod
from sunk_nodeset_controller.nodesets.plan import plan
from sunk_nodeset_controller.nodesets.protection import budget
from sunk_nodeset_controller.nodesets.status import ACCEPTED, SCHEDULED, SLURM_KNOWN, is_written, status
from sunk_nodeset_controller.reasons import NodeSetReason
from sunk_runtime.errors import ConflictError

T = TypeVar("T")


class TimeSlicer:
    """Long work in strides: between two of them everybody else has as much time as the last one took.

    A set of 5,000 Pods is looked at for 25 ms, planned for 40 and counted for 40: what Slurm says of a node
    meanwhile would wait for all of it.
    """

    def __init__(self) -> None:
        self.spent_s = 0.0
        """Processor time: that a machine is busy is no reason to work more seldom."""

    async def take(self, work: Callable[[], T]) -> T:
        """Do *work*, which waits for nothing, then give way, and return what it came to."""
        began_s = time.thread_time()
        done = work()
        spent_s = time.thread_time() - began_s
        self.spent_s += spent_s
        await anyio.sleep(spent_s)
        return done


log = logging.getLogger(__name__)

SEEN_S: Final = 5.0
"""How long our own Pods may take to come back to us by the watch."""
REFUSED_AGAIN_S: Final = 10.0
"""A quota may grow, a ServiceAccount be made: neither tells us."""
GUARD_AGAIN_S: Final = 300.0
"""How soon a disruption budget that somebody has deleted is there again."""
ADOPTED_AGAIN_S: Final = 1.0
LEFT_AGAIN_S: Final = 5.0
"""How soon Nodes that are left to an older NodeSet are looked at again."""
SHARE: Final = 0.1
"""Of a core, for looking and planning: a set of 5,000 Pods that all change is not planned at each change.

A turn that leaves Pods to be made to the next one is followed by that at once: making a thousand costs more.
"""


class NodeSetLoop:
    """Brings NodeSets closer to what they declare. One at a time: what one takes, the next must see."""

    def __init__(self, views: KubeViews, kube: FencedKube, observer: Observer, executor: Executor) -> None:
        self._views = views
        self._kube = kube
        self._observer = observer
        self._executor = executor
        self._revisions = Revisions(kube)
        self._name_conflicts = NameConflicts()
        self._adoption = Adoption(views, kube)
        self._rest = RateLimit()
        self._guarded: dict[str, tuple[float, str]] = {}
        """By key: when its disruption budget is due again, and why there is none."""
        self._rests_until: dict[str, float] = {}
        self._uids: dict[str, str] = {}
        """By key: of which NodeSet all of that is remembered."""

    async def reconcile(self, key: str) -> float | None:
        """Bring the NodeSet *key* one step closer; return when to look again though nothing changes."""
        self._views.require_complete()
        nodeset = self._views.nodesets.get(key)
        if nodeset is None:
            self._forget(key)
            return None
        uid = nodeset.metadata.uid
        if self._uids.get(key, uid) != uid:  # Made anew at once: the former one was never seen to be gone.
            self._forget(key)
        self._uids[key] = uid
        rest_s = self._rests_until.get(key, 0.0) - time.monotonic()
        if rest_s > 0:
            return rest_s
        time_slicer = TimeSlicer()
        seen = await time_slicer.take(partial(self._observer.observe, nodeset, self._name_conflicts.of(key)))
        found = await time_slicer.take(partial(plan, seen))
        is_growing = False
        try:
            again_s = await self._turn(seen, found)
            is_growing = again_s == 0.0 and any(isinstance(one, CreatePod) for one in found.actions)
        finally:
            rest_s = 0.0 if is_growing else time_slicer.spent_s * 2 * (1 / SHARE - 1)
            self._rests_until[key] = time.monotonic() + rest_s
        return again_s

    def _forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._uids.pop(key, None)
        self._observer.forget(key)
        self._name_conflicts.forget(key)
        self._revisions.forget(key)
        self._rests_until.pop(key, None)
        self._guarded.pop(key, None)
        self._adoption.forget(key)
        self._executor.forget(key)
        with suppress(KeyError):
            SLURM_IS_KNOWN.remove(key)

    async def _turn(self, seen: Observed, found: Plan) -> float | None:
        nodeset = seen.nodeset
        if found.is_over:
            await self._let_go(nodeset)
            return None
        is_deleted = nodeset.metadata.deletion_timestamp is not None
        try:
            if not found.invalid and not is_deleted:
                if found.actions or self._views.pods_of.count(nodeset.key) > 0:
                    await self._hold(nodeset)
                if await self._adoption.adopt(nodeset):
                    return ADOPTED_AGAIN_S  # The view will show them, and they are no longer to be made.
            done = await self._carry_out(seen, found)
            if (
                found.invalid and seen.pods
            ):  # What clears nodes has come first: a refusal holds it up no more.
                await self._hold(nodeset)
        except KubeRejectedError as error:  # Nothing is made or goes without what comes first.
            # A Pod that is to stay needs none of that to be released.
            if released := tuple(one for one in found.actions if isinstance(one, ReleasePod)):
                await self._executor.carry_out(seen, released)
            return await self._refused(nodeset, found, str(error))
        if done.rejected:
            return await self._refused(nodeset, replace(found, stuck=done.stuck), done.rejected)
        outcome = replace(found, stuck=done.stuck, refused=done.refused)
        rest_s = await self._write_status(nodeset, outcome, None if found.actions else seen)
        if len(done.actions) + done.resting < len(found.actions):
            return 0.0
        left_s = LEFT_AGAIN_S if seen.foreign or done.name_conflicts else None
        waits = (found.again_s, left_s, rest_s, done.resting_s)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _refused(self, nodeset: NodeSet, found: Plan, error: str) -> float:
        """Tell that the API server refuses some of *found*, or all; return when to try that again."""
        text = missing_right(error) or error
        log.error("nodeset refused", extra={"nodeset": nodeset.key, "error": text})
        rest_s = await self._write_status(nodeset, replace(found, refused=text))
        return REFUSED_AGAIN_S if rest_s is None else rest_s

    async def _carry_out(self, seen: Observed, found: Plan) -> Done:
        """Carry out *found* and wait until the view shows it: the next plan is made on it."""
        nodeset = seen.nodeset
        refused = ""
        if not found.invalid and nodeset.metadata.deletion_timestamp is None:
            await self._revisions.keep(seen)
            refused = await self._guard(nodeset)
        await self._executor.write_slices(seen, found)
        if not found.actions:
            return Done(refused=refused)
        done = (await self._executor.carry_out(seen, found.actions))._replace(refused=refused)
        log.info("nodeset reconciled", extra={"nodeset": nodeset.key, "actions": len(done.actions)})
        self._name_conflicts.note(nodeset.key, done.name_conflicts)
        created = {action.name for action in done.actions if isinstance(action, CreatePod)}
        await self._await_seen(nodeset.metadata.namespace, created - done.name_conflicts)
        return done

    async def _hold(self, nodeset: NodeSet) -> None:
        """See to it, before the first Pod is made or adopted, that the NodeSet does not go before its Pods.

        Raises:
            KubeRejectedError: the API server refuses; nothing is made or adopted then, and it is told.
        """
        finalizers = nodeset.metadata.finalizers
        if wk.FINALIZER_NODESET not in finalizers:
            await self._kube.hold_nodeset(nodeset, (*finalizers, wk.FINALIZER_NODESET))

    async def _guard(self, nodeset: NodeSet) -> str:
        """See to it, now and then, that nobody evicts the Pods of a NodeSet; say why not, if it cannot be."""
        now = time.monotonic()
        due, refused = self._guarded.get(nodeset.key, (now, ""))
        if due > now:
            return refused
        refused = ""
        try:
            await self._kube.apply_budget(budget(nodeset))
        except ConflictError as error:  # Another client's, or another client has changed ours.
            refused = f"no disruption budget: {error}"
        except KubeRejectedError as error:
            refused = f"no disruption budget: {error}"
        self._guarded[nodeset.key] = now + GUARD_AGAIN_S, refused
        return refused

    async def _let_go(self, nodeset: NodeSet) -> None:
        """Let a NodeSet go that is being deleted; it being gone is success."""
        left = [one for one in nodeset.metadata.finalizers if one != wk.FINALIZER_NODESET]
        if len(left) == len(nodeset.metadata.finalizers):
            return
        try:
            await self._kube.hold_nodeset(nodeset, left)
        except KubeNotFoundError:
            log.debug("nodeset gone already", extra={"nodeset": nodeset.key})

    async def _await_seen(self, namespace: str, names: Iterable[str]) -> None:
        missing = {f"{namespace}/{name}" for name in names}
        with anyio.move_on_after(SEEN_S):
            changes = self._views.pods.changes()
            while missing := {key for key in missing if self._views.pods.get(key) is None}:
                while await anext(changes) not in missing:
                    pass
            return
        raise KubeUnavailableError(f"pods of {namespace} are made, and not seen yet")

    async def _write_status(
        self, planned: NodeSet, found: Plan, seen: Observed | None = None
    ) -> float | None:
        """Write what the NodeSet has come to, if that has changed; *seen* is what it still is.

        Returns:
            When it is to be written, if that is too soon now.
        """
        nodeset = self._views.nodesets.get(planned.key) or planned
        if nodeset.metadata.uid != planned.metadata.uid:  # Another one by now, which has its own turn.
            return None
        time_slicer = TimeSlicer()
        if seen is None or seen.nodeset is not nodeset:
            seen = await time_slicer.take(
                partial(self._observer.observe, nodeset, self._name_conflicts.of(nodeset.key))
            )
        new_status = await time_slicer.take(partial(status, seen, found, planned.metadata.generation))
        known = condition(new_status.conditions, SLURM_KNOWN)
        SLURM_IS_KNOWN.labels(nodeset.key).set(known is None or known.status == "True")
        if is_written(nodeset.status, new_status):
            return None
        if left_s := self._rest.left_s(nodeset.key):
            return left_s
        self._rest.begin(nodeset.key)
        for kind, action in ((ACCEPTED, "Accept"), (SCHEDULED, "Schedule"), (SLURM_KNOWN, "Listen")):
            before = condition(nodeset.status.conditions, kind)
            after = condition(new_status.conditions, kind)
            if after is not None and is_news(before, after):  # Before the status says that it was said.
                await self._record_event(nodeset, after, action)
        with suppress(KubeNotFoundError):  # It has just gone, and its status with it.
            await self._kube.write_status(nodeset, new_status)
        return None

    async def _record_event(self, nodeset: NodeSet, found: Condition, action: str) -> None:
        """Say it as an Event; that nobody takes it holds nothing up."""
        try:
            reason = NodeSetReason(found.reason)
            text = EventText(reason=reason, action=action, note=found.message, type="Warning")
            await self._kube.record_event(nodeset, text)
        except KubeRejectedError as error:  # Its namespace is on its way out.
            log.warning("event refused", extra={"nodeset": nodeset.key, "error": str(error)})


def is_news(before: Condition | None, after: Condition) -> bool:
    """Whether *after* is bad, and not what was said before."""
    return after.status == "False" and (before is None or before.message != after.message)
