"""prolog.sh and epilog.sh as slurmd starts them, against a small HTTP server and a scontrol that notes.

The real scontrol is exercised end to end; here it stands in to see what is done, and in which order.
"""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_hook_gateway.testing.scripted import Said, ScriptedGateway, refusal, scripted_gateway

FILES = Path(__file__).parents[3] / "helm/slurm/files"
NOTED: Said = (200, "{}")
MARK = '{"sunk":{"uid":"u","pod":"ns/p","attempt":0,"mark":"m"}}'

# Knows one job and one node; its folder holds their states and what was done.
SCONTROL = """#!/bin/bash
cd "${0%/*}" || exit 1
[[ -e down ]] && { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
case "$*" in
    *'show job 7')
        [[ -e job ]] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
        echo "JobId=7 JobName=x JobState=$(<job) Reason=Prolog Requeue=$(<requeue) NodeList=gpu-1"
        ;;
    *'show node gpu-1') echo "NodeName=gpu-1 CPUAlloc=1 State=$(<node) Reason=x" ;;
    *) echo "scontrol $*" >>done; [[ $1 == requeue* ]] && echo PENDING >job ;;
esac
exit 0
"""
SCANCEL = """#!/bin/bash
cd "${0%/*}" || exit 1
echo "scancel $*" >>done
echo CANCELLED >job
"""


@pytest.fixture
def gateway() -> Generator[ScriptedGateway]:
    with scripted_gateway() as gateway:
        yield gateway


class Node:
    """A node with a job on it, as its scripts see it."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        for name, text in (("scontrol", SCONTROL), ("scancel", SCANCEL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "token").write_text("node-token\n")
        self.configure(url)
        self.say("job", "RUNNING")
        self.say("requeue", "1")
        self.say("node", "MIXED")

    def configure(self, url: str, *, deadline_s: int = 20) -> None:
        # The settings are read after the script has set its PATH.
        (self._folder / "hooks.env").write_text(
            f"SUNK_HOOKS_URL={url}\nSUNK_HOOKS_TOKEN_FILE={self._folder}/token\n"
            f"SUNK_HOOKS_DEADLINE_S={deadline_s}\nPATH={self._folder}:$PATH\n"
        )

    def say(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def forget_job(self) -> None:
        (self._folder / "job").unlink()

    @property
    def done(self) -> list[str]:
        """What was done with scontrol and scancel, in order."""
        path = self._folder / "done"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, script: str, *, extra: str = "") -> int:
        env = {
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": "gpu-1",
            "SUNK_HOOKS_ENV": str(self._folder / "hooks.env"),
            **({"SLURM_JOB_EXTRA": extra} if extra else {}),
        }
        return subprocess.run([FILES / script], env=env, check=False, timeout=60).returncode


@pytest.fixture
def node(tmp_path: Path, gateway: ScriptedGateway) -> Node:
    return Node(tmp_path, gateway.url)


DRAINED = (
    "scontrol update nodename=gpu-1 state=drain"
    " reason=k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
)
DRAINED_BY_ITSELF = (
    "scontrol update nodename=gpu-1 state=drain"
    " reason=k8s: prolog pre-hook failed: no answer from the hook gateway (sunk:verify-undrain)"
)


def test_scripts_can_be_executed() -> None:
    assert all(os.access(FILES / name, os.X_OK) for name in ("prolog.sh", "epilog.sh", "reboot.sh"))


def test_a_prolog_ends_well_when_its_node_is_locked(node: Node, gateway: ScriptedGateway) -> None:
    assert node.run("prolog.sh") == 0

    (path, token, body) = gateway.sent[0]
    assert (path, token) == ("/v1/nodes/gpu-1/prehook", "Bearer node-token")
    assert (body["job"], body["level"]) == (7, "normal")
    assert body["deadline_s"] in {19, 20}  # Whole seconds, and one may end meanwhile.
    assert node.done == []


def test_a_placeholders_prolog_asks_for_the_strict_lock(node: Node, gateway: ScriptedGateway) -> None:
    node.run("prolog.sh", extra=MARK)

    assert gateway.sent[0][2]["level"] == "strict"


def test_a_users_own_extra_is_no_mark(node: Node, gateway: ScriptedGateway) -> None:
    node.run("prolog.sh", extra='{"note":"my sunk run"}')

    assert gateway.sent[0][2]["level"] == "normal"


def test_a_prolog_tries_again_while_replicas_stop_and_connections_break(
    node: Node, gateway: ScriptedGateway
) -> None:
    gateway.answers = [(503, {"retry": True}), (0, None), (502, "proxy"), (200, {"locked": True})]

    assert node.run("prolog.sh") == 0
    assert len(gateway.sent) == 4
    assert node.done == []


@pytest.mark.parametrize(
    ("answer", "requeue", "done"),
    [
        pytest.param(
            refusal(drain=True, hold=False), "1", [DRAINED, "scontrol requeue 7"], id="drain, then requeue"
        ),
        pytest.param(
            refusal(drain=False, hold=True), "1", ["scontrol requeuehold 7"], id="hold and not drain"
        ),
        pytest.param(
            refusal(drain=True, hold=False), "0", [DRAINED, "scancel 7"], id="may not be requeued: cancel"
        ),
    ],
)
def test_a_refused_prolog_drains_its_node_before_the_job_leaves_it_and_ends_well(
    node: Node, gateway: ScriptedGateway, answer: tuple[int, object], requeue: str, done: list[str]
) -> None:
    node.say("requeue", requeue)
    gateway.answers = [answer]

    assert node.run("prolog.sh") == 0
    assert node.done == done


def test_a_drain_that_someone_else_set_stays_as_it_is(node: Node, gateway: ScriptedGateway) -> None:
    node.say("node", "MIXED+DRAIN")
    gateway.answers = [refusal(drain=True, hold=False)]

    assert node.run("prolog.sh") == 0
    assert node.done == ["scontrol requeue 7"]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING", "PENDING", ""])
def test_a_prolog_whose_job_no_longer_runs_does_nothing_and_ends_well(
    node: Node, gateway: ScriptedGateway, state: str
) -> None:
    gateway.answers = [refusal(drain=True, hold=False)]
    if state:
        node.say("job", state)
    else:
        node.forget_job()

    assert node.run("prolog.sh") == 0
    assert node.done == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_a_prolog_that_is_not_let_in_drains_its_node_and_fails_after_the_job_has_left(
    node: Node, gateway: ScriptedGateway, status: int
) -> None:
    gateway.answers = [(status, {"error": "no"})]

    assert node.run("prolog.sh") == 1
    assert node.done == [DRAINED_BY_ITSELF, "scontrol requeue 7"]


def test_a_prolog_without_settings_lets_no_job_start(node: Node, tmp_path: Path) -> None:
    (tmp_path / "hooks.env").write_text(f"PATH={tmp_path}:$PATH\n")

    assert node.run("prolog.sh") == 1
    assert node.done == [DRAINED_BY_ITSELF, "scontrol requeue 7"]


def test_a_prolog_that_nobody_answers_gives_up_before_slurm_ends_it(node: Node) -> None:
    node.configure("http://127.0.0.1:9", deadline_s=-13)  # Nothing listens there; two seconds are left.

    assert node.run("prolog.sh") == 1
    assert node.done == [DRAINED_BY_ITSELF, "scontrol requeue 7"]


def test_an_epilog_gives_the_lock_back(node: Node, gateway: ScriptedGateway) -> None:
    assert node.run("epilog.sh") == 0

    assert gateway.sent == [("/v1/nodes/gpu-1/release", "Bearer node-token", {"job": 7})]


def test_an_epilog_blocks_while_the_placeholders_pod_is_there(node: Node, gateway: ScriptedGateway) -> None:
    gateway.answers = [(202, {"gone": False}), (503, {"retry": True}), (202, {"gone": False}), (200, {})]

    assert node.run("epilog.sh", extra=MARK) == 0
    assert len(gateway.sent) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_an_epilog_never_fails(node: Node, gateway: ScriptedGateway, status: int) -> None:
    gateway.answers = [(status, {"error": "no"})]
    node.configure(gateway.url, deadline_s=-14)

    assert node.run("epilog.sh", extra=MARK) == 0


def test_an_epilog_without_settings_does_not_fail(node: Node, tmp_path: Path) -> None:
    (tmp_path / "hooks.env").unlink()

    assert node.run("epilog.sh") == 0


def test_an_epilog_stops_waiting_for_a_pod_that_stays(node: Node, gateway: ScriptedGateway) -> None:
    gateway.answers = [(202, {"gone": False})]
    node.configure(gateway.url, deadline_s=-14)  # One second in all.

    assert node.run("epilog.sh", extra=MARK) == 0


@pytest.mark.parametrize(
    ("answers", "code", "calls"),
    [
        pytest.param([NOTED], 0, 1, id="noted"),
        pytest.param([(0, ""), (503, {"retry": True}), NOTED], 0, 3, id="asked again until it is"),
        pytest.param([(403, {"error": "set syncer.nodePermissions.enabled"})], 1, 1, id="not permitted"),
    ],
)
def test_slurms_reboot_of_a_node_is_handed_to_the_gateway(
    node: Node, gateway: ScriptedGateway, answers: list[Said], code: int, calls: int
) -> None:
    gateway.answers = answers

    assert node.run("reboot.sh") == code
    assert [(path, token) for path, token, _ in gateway.sent] == [
        ("/v1/nodes/gpu-1/reboot", "Bearer node-token")
    ] * calls
    assert node.done == []
