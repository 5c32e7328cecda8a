"""What is said on the Pods of a gang: the same to all, or to each its own."""

from collections.abc import Iterable, Mapping

from sunk_events.placements import PlacementState
from sunk_kube.objects import Pod
from sunk_pod_scheduler.adapters.ports import PodPort
from sunk_pod_scheduler.gangs.model import GangSeen, Message
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.podspec.warnings import warnings
from sunk_runtime.together import each

Pods = Mapping[str, Pod]
"""The gang's Pods by uid, as they were looked at."""


class Notifier:
    """Says on Pods what concerns their gang."""

    def __init__(self, pods: PodPort) -> None:
        self._pods = pods

    async def tell(self, pods: Pods, notes: Mapping[str, Message]) -> None:
        """Say each note by Event and condition; said already, it is not said again."""

        async def tell(uid: str) -> None:
            if (pod := pods.get(uid)) is not None:
                say = self._pods.refuse if notes[uid].is_warning else self._pods.put_off
                await say(pod, notes[uid].reason, notes[uid].text)

        await each(notes, tell)

    async def refuse(self, pods: Iterable[Pod], reason: str, text: str) -> None:
        """Say what is wrong with all of *pods*."""
        note = Message(reason=reason, text=text, is_warning=True)
        found = {pod.metadata.uid: pod for pod in pods}
        await self.tell(found, dict.fromkeys(found, note))

    def alarm(self, pods: Iterable[Pod], note: Message) -> None:
        """Say by Event what is wrong with Pods that run."""
        for pod in pods:
            self._pods.warn(pod, note.reason, note.text)

    def say(self, pods: Iterable[Pod], reason: str, text: str) -> None:
        """Say *text* by Event on all of *pods*."""
        for pod in pods:
            self._pods.say(pod, reason, text)

    def warn(self, pods: Iterable[Pod], wanted: Mapping[str, ValidatedPod | None]) -> None:
        """Say by Event what the users of *pods* had better know; *wanted*: by uid, what each asks for."""
        for pod in pods:
            asked = wanted.get(pod.metadata.uid)
            for warned in warnings(pod, asked) if asked is not None else ():
                self._pods.warn(pod, warned.reason, warned.message)

    async def report_job_lost(self, pods: Iterable[Pod], state: PlacementState) -> None:
        """Say on Pods that run whether Slurm has lost their job."""
        is_lost = state.lost is not None
        text = state.reason if is_lost else f"Slurm job {state.job} is known again"

        async def tell(pod: Pod) -> None:
            await self._pods.report_job_lost(pod, "JobLost" if is_lost else "JobFound", text, is_lost=is_lost)

        await each(pods, tell)


def uids(seen: GangSeen) -> list[str]:
    """Return the uids of who has a seat."""
    roster = None if seen.record is None else seen.record.roster
    return [] if roster is None else [member.uid for member in roster.members]


def seated(seen: GangSeen, pods: Pods) -> list[Pod]:
    """Return the Pods that have a seat."""
    return [pods[uid] for uid in uids(seen) if uid in pods]


def name(seen: GangSeen) -> str:
    """Return the gang as people call it."""
    return f"{seen.kind} {seen.namespace}/{seen.name}"
