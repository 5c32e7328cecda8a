"""Why a Pod ends: said of its job in words, on the Pod and on who made it, before the Pod is deleted."""

from collections.abc import Callable

import anyio
import pytest
from msgspec.structs import replace

from sunk_kube.bodies import EventText
from sunk_kube.errors import KubeRejectedError
from sunk_kube.objects import KubeObject, OwnerReference
from sunk_kube.owners import TEXT_MAX
from sunk_kube.pods import Pod
from sunk_kube.resources import Resource
from sunk_pod_scheduler.adapters import event_recorder
from sunk_pod_scheduler.adapters.event_recorder import EventRecorder
from sunk_pod_scheduler.placement.end_reasons import by_whom, cause, plain, release_requested
from sunk_pod_scheduler.placement.model import JobGone, JobUnknown
from sunk_pod_scheduler.reasons import PodReason
from sunk_pod_scheduler.testing.builders import job, manifest
from sunk_runtime.testing import WITHIN_S

TEXT = EventText(reason=PodReason.POD_ENDS, action="Deleting", note="why")


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("CANCELLED", "job 7 was cancelled (scancel): it is CANCELLED"),
        ("TIMEOUT", "job 7 reached its time limit: it is TIMEOUT"),
        ("PREEMPTED", "job 7 was preempted by another job: it is PREEMPTED"),
        ("NODE_FAIL", "job 7 ended because its node failed: it is NODE_FAIL"),
        ("NEWER", "job 7 does not run any more: it is NEWER"),
    ],
)
def test_what_became_of_a_job_is_said_in_words_and_in_slurms_own(base: str, words: str) -> None:
    assert cause(job(base)) == words
    assert release_requested(job(base)) == words  # Whoever asks for the Pod's end, Slurm's word says why.


def test_a_script_that_asks_while_its_job_runs_says_what_slurm_says_of_preemption() -> None:
    assert release_requested(replace(job(), is_preempted=True)) == "job 7 is being preempted by another job"
    assert (
        release_requested(job())
        == "Slurm signalled the script of job 7 to end, or the node's epilog requested the Pod's end"
    )
    for nobody in (JobUnknown(), JobGone(has_ended=True)):
        assert (
            release_requested(nobody)
            == "Slurm signalled the script to end, or the node's epilog requested the Pod's end"
        )


def test_what_others_wrote_is_shown_in_one_line_and_not_for_ever() -> None:
    assert by_whom("") == ""
    assert by_whom("ada") == ", by Slurm user ada"
    assert len(by_whom("a\n\x1b[31m" * 1000)) < 100
    assert plain("a\n\x1b\u202eb") == "a\ufffd\ufffd\ufffdb"


class Api:
    """Takes Events, refuses them, or never answers."""

    def __init__(self, mood: Callable[[KubeObject], str]) -> None:
        self.mood = mood
        self.told: list[tuple[str, str, str]] = []

    async def record(self, kind: Resource[KubeObject], about: KubeObject, text: EventText) -> None:
        match self.mood(about):
            case "hangs":
                await anyio.sleep_forever()
            case "refuses":
                raise KubeRejectedError("no Events here", status=403)
            case _:
                self.told.append((kind.api_version, kind.kind, about.metadata.name))
        assert text == TEXT


def owned(name: str, *owners: OwnerReference) -> Pod:
    found = manifest(uid=f"uid-{name}", name=name)
    return replace(found, metadata=replace(found.metadata, owner_references=owners))


def controller(kind: str, api_version: str, name: str) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"uid-{name}", controller=True)


async def say(api: Api, *pods: Pod) -> None:
    await EventRecorder(api).record_now(pods, TEXT)  # pyright: ignore[reportArgumentType] - it only records


@pytest.mark.anyio
async def test_who_made_the_pods_is_told_once_and_who_only_refers_to_them_never() -> None:
    api = Api(lambda _: "takes")
    train = controller("Job", "batch/v1", "train")
    membership = replace(train, name="kin", uid="uid-kin", controller=False)
    await say(
        api, owned("a", train, membership), owned("b", train), owned("c", controller("Own", "x.io/v1", "o"))
    )

    assert sorted(api.told) == [
        ("batch/v1", "Job", "train"),
        ("v1", "Pod", "a"),
        ("v1", "Pod", "b"),
        ("v1", "Pod", "c"),
        ("x.io/v1", "Own", "o"),
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("mood", ["refuses", "hangs"])
async def test_an_event_that_cannot_be_said_keeps_no_pod(mood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "LAST_WORDS_S", 1.0 if mood == "hangs" else WITHIN_S)
    monkeypatch.setattr(event_recorder, "LAST_WORDS_MAX_S", WITHIN_S)
    api = Api(lambda about: mood if about.metadata.name == "a" else "takes")
    with anyio.fail_after(WITHIN_S):
        await say(api, owned("a"), owned("b", controller("Job", "batch/v1", "x" * (TEXT_MAX + 1))))

    assert api.told == [("v1", "Pod", "b")]
