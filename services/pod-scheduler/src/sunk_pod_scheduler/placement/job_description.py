"""A valid Pod to the placeholder job that holds its place in Slurm.

No requeue, or the same job id would come back; memory always, or the job would take its node's whole;
USR1 to the script, or it would hear nothing when a preemption's grace begins; with GPUs its node is for
placeholders only, or Slurm would give a job the same devices as the kubelet gives the Pod.

Source: measured on Slurm 24.11 and 26.05.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_pod_scheduler.placement import marks, tokens
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.annotations import SHARED_OF
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_slurm.submission import JobDescription
from sunk_slurm.wire import Number

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Placeholder(msgspec.Struct, frozen=True, kw_only=True):
    """What every placeholder has."""

    script: str
    hooks_url: str
    """Where the script finds the hook gateway."""
    hooks_ca_file: str = ""
    """What vouches for its certificate."""
    hooks_env_file: str = ""
    """What says both on a node that has it: a job may wait for days."""
    key: bytes

    def digest(self, uid: str, attempt: int) -> str:
        """Return what the gateway knows the script of attempt *attempt* at placing *uid* by."""
        return tokens.digest(tokens.token(self.key, uid, attempt))

    def known(self, state: PlacementState) -> PlacementState:
        """Return *state* with what its script is known by, also where a Pod's annotation told of its job."""
        if state.job is None or state.token_sha256:
            return state
        return replace(state, token_sha256=self.digest(state.uid, state.attempt))


def describe(
    pod: Pod, wanted: ValidatedPod, choice: NodeChoice, attempt: int, made: Placeholder
) -> JobDescription:
    """Return the job for attempt *attempt* at placing *pod*, held."""
    meta = pod.metadata
    requested = wanted.requested
    environment: Mapping[str, str] = {
        "PATH": PATH,
        "SUNK_HOOKS_URL": made.hooks_url,
        "SUNK_PLACEHOLDER_TOKEN": tokens.token(made.key, meta.uid, attempt),
        "CURL_CA_BUNDLE": made.hooks_ca_file,
        "SUNK_HOOKS_ENV": made.hooks_env_file,
    }
    return JobDescription(
        script=made.script,
        environment=tuple(f"{name}={value}" for name, value in environment.items() if value),
        current_working_directory=requested.current_working_directory,
        name=f"{meta.namespace}/{meta.name}",
        user_id=str(wanted.identity.user_id),
        group_id="" if wanted.identity.group_id is None else str(wanted.identity.group_id),
        account=requested.account,
        partition=requested.partition,
        qos=requested.qos,
        reservation=requested.reservation,
        hold=True,
        requeue=False,
        standard_input="/dev/null",
        standard_output="/dev/null",
        standard_error="/dev/null",
        comment=requested.comment,
        admin_comment=marks.admin_comment(f"Pod {pod.key}", meta.uid, attempt),
        extra=marks.extra_text(made.key, meta.uid, pod.key, attempt, wanted.identity.user_id),
        constraints=requested.constraints,
        prefer=requested.prefer,
        required_nodes=choice.required,
        excluded_nodes=choice.excluded,
        minimum_nodes=1,
        maximum_nodes=1,
        tasks=1,
        cpus_per_task=wanted.cpus,
        memory_per_node=Number.of(wanted.memory_mib),
        tres_per_node=_gres(wanted),
        shared=requested.shared or (SHARED_OF["user"] if wanted.gpus else ()),
        time_limit=requested.time_limit,
        kill_warning_signal="USR1",
        kill_warning_flags=("BATCH_JOB",),
        kill_warning_delay=Number.of(0),  # Else it comes before the time limit too, by up to 30 s more.
    )


def _gres(wanted: ValidatedPod) -> str:
    if not wanted.gpus:
        return ""
    return ":".join(part for part in ("gres/gpu", wanted.gpu_type, str(wanted.gpus)) if part)
