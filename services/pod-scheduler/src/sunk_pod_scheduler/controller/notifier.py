"""What is said on Pods: on the one, or on those of a gang, the same to all or to each its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from anyio.lowlevel import checkpoint

from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_pod_scheduler.adapters.ports import PodPort
from sunk_pod_scheduler.gangs.model import Message
from sunk_pod_scheduler.gangs.ownership import Pods
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.podspec.warnings import warnings
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.together import each

SLICE: Final = 100
"""Pods of which the Events are thought of without a pause."""


class Notifier:
    """Says on Pods what becomes of them."""

    def __init__(self, pods: PodPort) -> None:
        self._pods = pods

    async def notify(self, pods: Pods, notes: Mapping[str, Message]) -> None:
        """Say each note by Event and condition; said already, it is not said again."""

        async def notify(uid: str) -> None:
            note, pod = notes[uid], pods.get(uid)
            if pod is None:
                return
            if note.is_warning:
                await self._pods.refuse(pod, note.reason, note.text)
            else:
                await self._pods.put_off(pod, note.reason, note.text, is_quiet=note.is_quiet)

        await each(notes, notify)

    async def notify_all(self, pods: Iterable[Pod], note: Message) -> None:
        """Say the same on all of *pods*."""
        found = {pod.metadata.uid: pod for pod in pods}
        await self.notify(found, dict.fromkeys(found, note))

    async def report_job_lost(self, pods: Iterable[Pod], state: PlacementState, *, refused: str = "") -> None:
        """Say on Pods that run whether Slurm has lost their job, or that it has *refused* another."""
        is_lost = state.lost is not None
        found = PodReason.JOB_LOST if is_lost else PodReason.JOB_FOUND
        reason = PodReason.SUBMISSION_FAILED if refused else found

        async def notify(pod: Pod) -> None:
            again = f"Slurm job {state.job} holds the place of {pod.key} again"
            text = refused or (state.reason if is_lost else again)
            await self._pods.report_job_lost(pod, reason, text, is_lost=is_lost)

        await each(pods, notify)

    async def released(
        self, pods: Sequence[Pod], job: int | None, wanted: Mapping[str, ValidatedPod | None]
    ) -> None:
        """Say that *job* is submitted for *pods*, and what their users had better know.

        *wanted*: by uid, what each asks for.
        """
        whom = pods[0].key if len(pods) == 1 else f"{len(pods)} Pods"
        for number, pod in enumerate(pods, 1):
            if number % SLICE == 0:
                await checkpoint()
            if pod.spec.node_name:
                continue
            text = f"Slurm job {job} is submitted for {whom}"
            self._pods.record_event(pod, PodReason.PLACEHOLDER_SUBMITTED, text)
            validated = wanted.get(pod.metadata.uid)
            for warned in warnings(pod, validated) if validated is not None else ():
                self._pods.warn(pod, warned.reason, warned.message)
