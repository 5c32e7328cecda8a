"""prolog.sh and epilog.sh as slurmd starts them, against a small HTTP server and a scontrol that notes.

The real scontrol is exercised end to end; here it stands in to see what is done, and in which order.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from sunk_hook_gateway.testing.certificates import Authority
from sunk_hook_gateway.testing.scripted import YES, ScriptedAnswer, ScriptedGateway, refusal, scripted_gateway

FILES = Path(__file__).parents[3] / "helm/slurm/files"
OURS = ("prolog.sh", "epilog.sh", "reboot.sh", "check.sh", "gateway.sh")
NEEDED = ("bash", "cat", "sleep", "timeout")
"""All that a minimal image has to have, besides Slurm."""
NOTED: ScriptedAnswer = (200, {})
MARK = '{"sunk":{"uid":"u","pod":"ns/p","attempt":0,"mark":"m"}}'

# These know one job, which may have a second component or be a task among others, and one node; their folder
# holds the states and what was done.
SCONTROL = """#!/bin/bash
cd "${0%/*}" || exit 1
[[ -e down ]] && { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
case "$*" in
    'show config') cat config ;;
    'show hostnames'*) cat hostnames ;;
    *'show node gpu-1')
        [[ -e slow ]] && sleep "$(<slow)"
        echo "NodeName=gpu-1 CPUAlloc=1 State=$(<node) Reason=x"
        ;;
    update*) [[ -e slow ]] && sleep 30 ;;&
    *admincomment*) [[ -e unmarked ]] && exit 1 ;;&
    *) echo "scontrol $*" >>done; [[ $1 == requeue* ]] && echo PENDING >job ;;
esac
exit 0
"""
SQUEUE = """#!/bin/bash
cd "${0%/*}" || exit 1
[[ -e down ]] && { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
[[ -e job ]] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
[[ $* == *BatchHost* ]] && { echo "7|$(<host)|"; exit; }
[[ -e others ]] && others=$(<others) && echo "${others//STATE/$(<job)}"
echo "7|$(<array)|$(<job)|$(<batch)|$(<requeue)|gpu-1|"
[[ -e component ]] && echo "8|8|N/A|$(<component)|"
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

    def __init__(self, folder: Path, url: str, *, has_curl: bool) -> None:
        self._folder = folder
        programs = folder / "programs"
        programs.mkdir()
        for name in (*NEEDED, *(("curl",) if has_curl else ())):
            (programs / name).symlink_to(str(shutil.which(name)))
        for name, text in (("scontrol", SCONTROL), ("squeue", SQUEUE), ("scancel", SCANCEL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "token").write_text("node-token\n")
        (folder / "gateway.sh").symlink_to(FILES / "gateway.sh")
        self.stderr = ""
        self.limit_s = 60
        """After so long Slurm ends its scripts."""
        self._took_s = 0.0
        self.configure(url)
        self.say("job", "RUNNING")
        self.say("requeue", "1")
        self.say("array", "7|N/A")
        self.say("batch", "1")
        self.say("host", "gpu-1")
        self.say("node", "MIXED")

    def configure(
        self, url: str, *, deadline_s: int = 20, authority: Path | str = "", without_tls: str = ""
    ) -> None:
        # The settings are read after the script has set its PATH.
        (self._folder / "hooks.env").write_text(
            f"SUNK_HOOKS_URL={url}\nSUNK_HOOKS_TOKEN_FILE={self._folder}/token\n"
            f"SUNK_HOOKS_CA_FILE={authority}\nSUNK_HOOKS_URL_WITHOUT_TLS={without_tls}\n"
            f"SUNK_HOOKS_DEADLINE_S={deadline_s}\nPATH={self._folder}:{self._folder}/programs\n"
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

    def run(self, script: str, *arguments: str, extra: str = "", **more: str) -> int:
        env = {
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": "gpu-1",
            "SLURM_CONF": str(self._folder / "slurm.conf"),
            "SUNK_HOOKS_ENV": str(self._folder / "hooks.env"),
            **({"SLURM_JOB_EXTRA": extra} if extra else {}),
            **more,
        }
        command = [FILES / script, *arguments]
        began = time.monotonic()
        ended = subprocess.run(
            command, env=env, check=False, timeout=self.limit_s, capture_output=True, text=True
        )
        self._took_s = time.monotonic() - began
        self.stdout, self.stderr = ended.stdout, ended.stderr
        return ended.returncode

    def left_of(self, bound_s: int) -> range:
        """Return what may have been left of *bound_s* while the last script ran.

        A script counts whole seconds, and one may end right after it began.
        """
        return range(bound_s - int(self._took_s) - 1, bound_s + 1)


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path: Path, gateway: ScriptedGateway) -> Node:
    return Node(tmp_path, gateway.url, has_curl=getattr(request, "param", True))


with_and_without_curl = pytest.mark.parametrize(
    "node", [True, False], ids=["curl", "bash alone"], indirect=True
)


DRAINED = (
    "scontrol update nodename=gpu-1 state=drain"
    " reason=k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
)


HELD = (
    "scontrol update jobid=7"
    " admincomment=sunk: held: k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
)


def drained_by_itself(why: str = "no answer from the hook gateway") -> str:
    reason = f"k8s: prolog pre-hook failed: {why} (sunk:verify-undrain)"
    return f"scontrol update nodename=gpu-1 state=drain reason={reason}"


def test_scripts_can_be_executed() -> None:
    assert all(os.access(FILES / name, os.X_OK) for name in OURS if name != "gateway.sh")


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")

    told = subprocess.run(
        [shellcheck, "--external-sources", *OURS, "scripts/end-processes"],
        cwd=FILES,
        check=False,
        capture_output=True,
        text=True,
    )

    assert told.stdout == ""


@with_and_without_curl
def test_a_prolog_ends_well_when_its_node_is_locked(node: Node, gateway: ScriptedGateway) -> None:
    assert node.run("prolog.sh") == 0

    (path, token, body) = gateway.sent[0]
    assert (path, token) == ("/v1/nodes/gpu-1/prehook", "Bearer node-token")
    assert (body["job"], body["level"]) == (7, "normal")
    assert body["deadline_s"] in node.left_of(20)
    assert node.done == []


def test_a_placeholders_prolog_asks_for_the_strict_lock(node: Node, gateway: ScriptedGateway) -> None:
    node.run("prolog.sh", extra=MARK)

    assert gateway.sent[0][2]["level"] == "strict"


def test_a_users_own_extra_is_no_mark(node: Node, gateway: ScriptedGateway) -> None:
    node.run("prolog.sh", extra='{"note":"my sunk run"}')

    assert gateway.sent[0][2]["level"] == "normal"


@with_and_without_curl
def test_a_prolog_tries_again_while_replicas_stop_and_connections_break(
    node: Node, gateway: ScriptedGateway
) -> None:
    gateway.answers = [(503, {"retry": True}), (0, None), (502, "proxy"), (200, {"locked": True})]

    assert node.run("prolog.sh") == 0
    assert len(gateway.sent) == 4
    assert node.done == []


@with_and_without_curl
def test_a_gateway_that_dies_with_its_machine_costs_a_prolog_one_more_call(
    node: Node, gateway: ScriptedGateway
) -> None:
    node.configure(gateway.url, deadline_s=1)  # So that a call ends soon.
    gateway.lost = 1

    assert node.run("prolog.sh") == 0
    assert len(gateway.sent) == 2
    assert node.done == []


@pytest.mark.parametrize(("deadline_s", "held_s"), [(50, 15), (20, None)])
def test_a_prolog_that_is_told_not_yet_calls_again(
    node: Node, gateway: ScriptedGateway, deadline_s: int, held_s: int | None
) -> None:
    node.configure(gateway.url, deadline_s=deadline_s)
    gateway.answers = [(202, {"locked": False}), (200, {"locked": True})]

    assert node.run("prolog.sh") == 0
    assert len(gateway.sent) == 2
    assert gateway.sent[0][2]["hold_s"] in ([held_s] if held_s else node.left_of(deadline_s))
    assert node.done == []


@pytest.mark.parametrize(
    ("answer", "requeue", "done"),
    [
        pytest.param(
            refusal(drain=True, hold=False), "1", [DRAINED, "scontrol requeue 7"], id="drain, then requeue"
        ),
        pytest.param(
            refusal(drain=False, hold=True), "1", ["scontrol requeuehold 7", HELD], id="hold and not drain"
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


def test_a_job_that_is_held_and_cannot_be_marked_is_no_error_of_its_prolog(
    node: Node, gateway: ScriptedGateway
) -> None:
    node.say("unmarked", "")
    gateway.answers = [refusal(drain=False, hold=True)]

    assert node.run("prolog.sh") == 0
    assert node.done == ["scontrol requeuehold 7"]


@with_and_without_curl
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


@with_and_without_curl
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_a_prolog_that_is_not_let_in_drains_its_node_and_fails_after_the_job_has_left(
    node: Node, gateway: ScriptedGateway, status: int
) -> None:
    gateway.answers = [(status, {"error": "no"})]

    assert node.run("prolog.sh") == 1
    assert node.done == [drained_by_itself(f"the hook gateway answered HTTP {status}"), "scontrol requeue 7"]


def test_a_prolog_without_settings_lets_no_job_start(node: Node, tmp_path: Path) -> None:
    (tmp_path / "hooks.env").write_text(f"PATH={tmp_path}:$PATH\n")

    assert node.run("prolog.sh") == 1
    assert node.done == [drained_by_itself("SUNK_HOOKS_URL is not set"), "scontrol requeue 7"]


def test_a_prolog_without_its_other_half_lets_no_job_start(node: Node, tmp_path: Path) -> None:
    (tmp_path / "gateway.sh").unlink()

    assert node.run("prolog.sh") == 1
    missing = f"{tmp_path}/gateway.sh cannot be read"
    assert node.done == [drained_by_itself(missing), "scontrol requeue 7"]


@with_and_without_curl
def test_a_prolog_without_a_token_says_so_and_asks_nobody(
    node: Node, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    (tmp_path / "token").unlink()

    assert node.run("prolog.sh") == 1
    assert gateway.sent == []
    why = f"SUNK_HOOKS_TOKEN_FILE={tmp_path}/token cannot be read, or is empty"
    assert node.done == [drained_by_itself(why), "scontrol requeue 7"]


def test_a_slurmctld_that_is_slow_to_drain_leaves_time_to_take_the_job_out_of_running(
    node: Node, gateway: ScriptedGateway
) -> None:
    node.say("slurm.conf", "PrologEpilogTimeout=25\n")
    node.say("slow", "4")
    gateway.answers = [refusal(drain=True, hold=False)]

    node.limit_s = 25

    assert node.run("prolog.sh") == 0
    assert node.done == ["scontrol requeue 7"]


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh", "reboot.sh"])
@pytest.mark.parametrize("status", [408, 429])
def test_an_answer_that_is_about_this_call_only_is_asked_for_again(
    node: Node, gateway: ScriptedGateway, script: str, status: int
) -> None:
    gateway.answers = [(status, {"error": "too slow"}), (200, {"locked": True})]

    assert node.run(script) == 0
    assert len(gateway.sent) == 2
    assert node.done == []


@with_and_without_curl
def test_half_an_answer_is_none(node: Node, gateway: ScriptedGateway) -> None:
    status, content = refusal(drain=True, hold=False)
    gateway.answers = [(-status, content), (200, {"locked": True})]

    assert node.run("prolog.sh") == 0
    assert len(gateway.sent) == 2
    assert node.done == []


@with_and_without_curl
def test_a_prolog_that_nobody_answers_gives_up_before_slurm_ends_it(node: Node) -> None:
    node.configure("http://127.0.0.1:9", deadline_s=-13)  # Nothing listens there; two seconds are left.

    assert node.run("prolog.sh") == 1
    assert node.done == [drained_by_itself(), "scontrol requeue 7"]


@with_and_without_curl
def test_an_epilog_gives_the_lock_back(node: Node, gateway: ScriptedGateway) -> None:
    assert node.run("epilog.sh") == 0

    assert gateway.sent == [("/v1/nodes/gpu-1/release", "Bearer node-token", {"job": 7})]


@with_and_without_curl
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


def test_an_epilog_waits_no_longer_for_a_gateway_because_of_what_a_user_writes(
    node: Node, gateway: ScriptedGateway
) -> None:
    gateway.answers = [(503, {"retry": True})]
    node.configure(gateway.url, deadline_s=3600)  # Until then a placeholder's node may be held up.

    assert node.run("epilog.sh", extra='{"sunk":{') == 0


def test_an_epilog_stops_waiting_for_a_pod_that_stays(node: Node, gateway: ScriptedGateway) -> None:
    gateway.answers = [(202, {"gone": False})]
    node.configure(gateway.url, deadline_s=-14)  # One second in all.

    assert node.run("epilog.sh", extra=MARK) == 0


@with_and_without_curl
@pytest.mark.parametrize(
    ("answers", "code", "calls"),
    [
        pytest.param([NOTED], 0, 1, id="noted"),
        pytest.param([(0, ""), (503, {"retry": True}), NOTED], 0, 3, id="asked again until it is"),
        pytest.param([(403, {"error": "set syncer.nodePermissions.enabled"})], 1, 1, id="not permitted"),
    ],
)
def test_slurms_reboot_of_a_node_is_handed_to_the_gateway(
    node: Node, gateway: ScriptedGateway, answers: list[ScriptedAnswer], code: int, calls: int
) -> None:
    gateway.answers = [*answers]

    assert node.run("reboot.sh") == code
    assert [(path, token) for path, token, _ in gateway.sent] == [
        ("/v1/nodes/gpu-1/reboot", "Bearer node-token")
    ] * calls
    assert node.done == []


def test_slurmctlds_reboot_of_many_nodes_is_handed_to_the_gateway_one_by_one(
    node: Node, gateway: ScriptedGateway
) -> None:
    names = [f"gpu-{number}" for number in range(40)]
    node.say("hostnames", "\n".join(names))

    assert node.run("reboot.sh", "nodes", "gpu-[0-39]") == 0
    assert sorted(path for path, _, _ in gateway.sent) == sorted(f"/v1/nodes/{name}/reboot" for name in names)


def test_one_node_that_may_not_be_rebooted_keeps_no_other_from_it(
    node: Node, gateway: ScriptedGateway
) -> None:
    node.say("hostnames", "gpu-1\ngpu-2\ngpu-3")
    gateway.answers = [(403, {"error": "set syncer.nodePermissions.enabled"}), NOTED, NOTED]

    assert node.run("reboot.sh", "nodes", "gpu-[1-3]") == 1
    assert len(gateway.sent) == 3
    assert "HTTP 403" in node.stderr


def test_a_node_that_is_asked_for_again_and_again_keeps_no_other_waiting(
    node: Node, gateway: ScriptedGateway
) -> None:
    names = [f"gpu-{number}" for number in range(20)]
    node.say("hostnames", "\n".join(names))
    gateway.by_path["/v1/nodes/gpu-0/reboot"] = 503, {"error": "the Node of gpu-0 is not known"}
    everyone = {f"/v1/nodes/{name}/reboot" for name in names}

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(node.run, "reboot.sh", "nodes", "gpu-[0-19]")
        while not (ended.done() or everyone <= {path for path, _, _ in gateway.sent}):
            time.sleep(0.02)
        gateway.accept_all()

        assert ended.result() == 0


def test_features_that_slurmd_hands_to_its_reboot_are_no_nodes(node: Node, gateway: ScriptedGateway) -> None:
    assert node.run("reboot.sh", "nodes") == 0
    assert [path for path, _, _ in gateway.sent] == ["/v1/nodes/gpu-1/reboot"]


def test_a_gateway_with_tls_is_called_where_its_authority_is_known(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with scripted_gateway(authority.server()) as gateway:
        node = Node(tmp_path, gateway.url, has_curl=True)
        node.configure(gateway.url, authority=authority.file)

        assert [node.run(script) for script in ("prolog.sh", "epilog.sh", "reboot.sh")] == [0, 0, 0]
        assert [token for _, token, _ in gateway.sent] == ["Bearer node-token"] * 3


def test_a_gateway_whose_authority_is_not_known_is_told_nothing(tmp_path: Path) -> None:
    with scripted_gateway(Authority(tmp_path).server()) as gateway:
        node = Node(tmp_path, gateway.url, has_curl=True)
        node.configure(gateway.url, authority=Authority(tmp_path, "another").file, deadline_s=-7)
        # Its last call has a second, in which a machine that does much else makes no handshake.
        curl = tmp_path / "programs/curl"
        curl.unlink()
        curl.write_text('#!/bin/bash\nexec /usr/bin/curl "$@" --max-time 60\n')
        curl.chmod(0o755)

        assert node.run("prolog.sh") == 1
        assert gateway.sent == []
        why = "SUNK_HOOKS_CA_FILE has no CA of the certificate of the hook gateway"
        assert node.done == [drained_by_itself(why), "scontrol requeue 7"]


@pytest.mark.parametrize("has_curl", [True, False])
def test_a_node_that_lacks_the_authority_calls_without_tls_while_the_gateway_answers_both(
    tmp_path: Path, *, has_curl: bool
) -> None:
    with scripted_gateway() as plain:
        node = Node(tmp_path, plain.url, has_curl=has_curl)
        node.configure("https://127.0.0.1:9", authority=tmp_path / "not-there-yet", without_tls=plain.url)

        assert [node.run(script) for script in ("prolog.sh", "epilog.sh", "reboot.sh")] == [0, 0, 0]
        assert len(plain.sent) == 3


def test_a_node_that_has_the_authority_calls_by_tls_also_while_the_gateway_answers_both(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    with scripted_gateway() as plain, scripted_gateway(authority.server()) as gateway:
        node = Node(tmp_path, plain.url, has_curl=True)
        node.configure(gateway.url, authority=authority.file, without_tls=plain.url)

        assert [node.run(script) for script in ("prolog.sh", "epilog.sh", "reboot.sh")] == [0, 0, 0]
        assert (len(gateway.sent), plain.sent) == (3, [])


@pytest.mark.parametrize("why", ["another authority", "nothing listens", "no curl"])
def test_a_call_that_tls_does_not_carry_goes_without_it_while_the_gateway_answers_both(
    tmp_path: Path, why: str
) -> None:
    known = Authority(tmp_path)
    with scripted_gateway() as plain, scripted_gateway(Authority(tmp_path, "other").server()) as gateway:
        node = Node(tmp_path, plain.url, has_curl=why != "no curl")
        url = "https://127.0.0.1:9" if why == "nothing listens" else gateway.url
        node.configure(url, authority=known.file, without_tls=plain.url)

        assert [node.run(script) for script in ("prolog.sh", "epilog.sh", "reboot.sh")] == [0, 0, 0]
        assert (len(plain.sent), gateway.sent, node.done) == (3, [], [])


def test_a_gateway_that_moves_while_a_prolog_waits_is_found_again(tmp_path: Path) -> None:
    with scripted_gateway() as gateway, ThreadPoolExecutor(1) as threads:
        node = Node(tmp_path, "http://127.0.0.1:9", has_curl=True)
        ended = threads.submit(node.run, "prolog.sh")
        time.sleep(1)  # It has been refused by now, or finds the gateway at once.
        node.configure(gateway.url)

        assert ended.result() == 0
        assert len(gateway.sent) == 1
        assert node.done == []


def test_an_image_without_curl_says_that_tls_needs_it(tmp_path: Path) -> None:
    node = Node(tmp_path, "https://127.0.0.1:9", has_curl=False)

    assert node.run("prolog.sh") == 1
    why = "no curl in this image, and bash alone cannot call https addresses"
    assert node.done == [drained_by_itself(why), "scontrol requeue 7"]
    assert node.run("epilog.sh") == 0
    assert node.run("reboot.sh") == 1
    assert why in node.stderr


@pytest.mark.parametrize(
    ("conf", "limit_s"),
    [
        ("PrologEpilogTimeout=40\n", 40),
        ("KillWait=5\n prologepilogtimeout = 90\nPrologEpilogTimeout=41 # once more", 41),
        ("PrologEpilogTimeout=300\nPrologTimeout=42\n", 42),
    ],
)
def test_a_prolog_is_done_before_slurm_ends_it_and_says_what_to_set(
    node: Node, gateway: ScriptedGateway, conf: str, limit_s: int
) -> None:
    node.say("slurm.conf", conf)

    assert node.run("prolog.sh") == 0
    assert gateway.sent[0][2]["deadline_s"] in node.left_of(limit_s - 30)
    assert f"slurm.conf ends prologs after {limit_s} s: set PrologEpilogTimeout=50" in node.stderr


@pytest.mark.parametrize("conf", ["PrologEpilogTimeout=50\n", "PrologEpilogTimeout=65534\n", "#X=1\n"])
def test_a_prolog_with_time_enough_says_nothing(node: Node, gateway: ScriptedGateway, conf: str) -> None:
    node.say("slurm.conf", conf)

    assert node.run("prolog.sh") == 0
    assert gateway.sent[0][2]["deadline_s"] in node.left_of(20)
    assert node.stderr == ""


OTHERS = [{"job": 8, "nodes": "gpu-[2-3]"}]
HET = {"SLURM_HET_JOB_ID": "7", "SLURM_JOB_START_TIME": "1700000000"}


@pytest.mark.parametrize(
    ("host", "others"),
    [
        pytest.param("gpu-1", OTHERS, id="where the script starts"),
        pytest.param("gpu-10", None, id="another of its nodes"),
    ],
)
def test_the_first_node_of_a_heterogeneous_job_waits_for_the_other_components(
    node: Node, gateway: ScriptedGateway, host: str, others: object
) -> None:
    node.say("host", host)
    node.say("component", "RUNNING|1|1|gpu-[2-3]")

    assert node.run("prolog.sh", **HET) == 0
    (_, _, body) = gateway.sent[0]
    assert body.get("components") == others
    assert body.get("started") == (1700000000 if others else None)


def test_a_component_that_slurm_has_not_started_yet_is_waited_for(
    node: Node, gateway: ScriptedGateway
) -> None:
    node.configure(gateway.url, deadline_s=-7)
    node.say("component", "PENDING|1|1|")

    assert node.run("prolog.sh", **HET) == 1
    assert gateway.sent == []
    why = "slurmctld does not list the components of the job"
    assert node.done == [drained_by_itself(why), "scontrol requeue 7"]


def test_a_component_that_was_cancelled_by_itself_is_not_waited_for(
    node: Node, gateway: ScriptedGateway
) -> None:
    node.say("component", "CANCELLED|1|1|gpu-2")

    assert node.run("prolog.sh", **HET) == 0
    assert "components" not in gateway.sent[0][2]


@pytest.mark.parametrize(("requeue", "done"), [("1", "scontrol requeue 7"), ("0", "scancel 7")])
def test_a_refused_component_takes_the_whole_heterogeneous_job_back(
    node: Node, gateway: ScriptedGateway, requeue: str, done: str
) -> None:
    node.say("requeue", requeue)
    node.say("others", f"8|8|N/A|STATE|1|{requeue}|gpu-1|")
    gateway.answers = [refusal(drain=True, hold=False)]

    assert node.run("prolog.sh", **(HET | {"SLURM_JOB_ID": "8"})) == 0
    assert "components" not in gateway.sent[0][2]
    assert node.done == [DRAINED, done]


@pytest.mark.parametrize(
    ("answer", "requeue", "done"),
    [
        pytest.param(refusal(drain=True, hold=False), "1", ["scontrol requeue 7_20"], id="requeued"),
        pytest.param(
            refusal(drain=False, hold=True),
            "1",
            ["scontrol requeuehold 7_20", HELD.replace("=7", "=7_20")],
            id="held",
        ),
        pytest.param(refusal(drain=True, hold=False), "0", ["scancel 7_20"], id="cancelled"),
    ],
)
def test_the_refusal_of_an_arrays_last_task_is_of_no_other_task(
    node: Node, gateway: ScriptedGateway, answer: ScriptedAnswer, requeue: str, done: list[str]
) -> None:
    node.say("array", "7|20")  # It has the array's id, by which Slurm takes all tasks.
    node.say("others", "8|7|19|COMPLETED|1|1|gpu-2|")
    node.say("requeue", requeue)
    node.say("node", "MIXED+DRAIN")
    gateway.answers = [answer]

    assert node.run("prolog.sh") == 0
    assert node.done == done


BAD_GPUS = "scontrol update nodename=gpu-1 state=drain reason=GPU errors (sunk:verify-undrain)"


@pytest.fixture
def example(tmp_path: Path, node: Node) -> Path:
    """The prolog script of the chart's example, on a node whose GPUs have errors."""
    (tmp_path / "nvidia-smi").write_text('#!/bin/bash\necho 0\ncat "${0%/*}/errors"\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    node.say("errors", "3\n")
    (tmp_path / "programs/grep").symlink_to(str(shutil.which("grep")))
    values = yaml.safe_load((FILES.parent / "examples/gpu.yaml").read_text())
    script = tmp_path / "20-gpus"
    script.write_text(values["hooks"]["prolog"]["20-gpus"].replace("/etc/sunk/scripts", str(tmp_path)))
    (tmp_path / "unfit").write_text((FILES / "scripts/unfit").read_text())
    (tmp_path / "unfit").chmod(0o755)
    (tmp_path / "prolog.sh").symlink_to(FILES / "prolog.sh")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("said", "done"),
    [
        pytest.param({}, [BAD_GPUS, "scontrol requeue 7"], id="a batch job"),
        pytest.param({"array": "7|20"}, [BAD_GPUS, "scontrol requeue 7_20"], id="one task of an array"),
        pytest.param({"requeue": "0"}, [BAD_GPUS, "scancel 7"], id="may not be requeued"),
        pytest.param({"job": "PENDING"}, [BAD_GPUS], id="requeued by another node"),
        pytest.param({"job": "CANCELLED"}, [BAD_GPUS], id="cancelled meanwhile"),
        pytest.param({"node": "MIXED+DRAIN"}, ["scontrol requeue 7"], id="drained already"),
        pytest.param({"errors": "0\n"}, [], id="no errors"),
    ],
)
def test_a_script_that_finds_its_node_unfit_keeps_its_job_off_it_and_touches_no_other(
    node: Node, example: Path, said: dict[str, str], done: list[str]
) -> None:
    for name, text in said.items():
        node.say(name, text)

    assert node.run(str(example), PATH=f"{example.parent}:{example.parent}/programs") == 0
    assert node.done == done


def test_who_waits_at_a_terminal_for_a_node_that_is_unfit_is_told_so(node: Node, example: Path) -> None:
    node.say("batch", "0")

    assert node.run(str(example), PATH=f"{example.parent}:{example.parent}/programs") == 0
    assert node.done == [
        BAD_GPUS,
        "scontrol notify 7 job 7 is cancelled, please start it again: GPU errors (sunk:verify-undrain)",
        "scontrol update jobid=7 admincomment=sunk: cancelled: GPU errors (sunk:verify-undrain)",
        "scancel 7",
    ]


def test_a_script_that_cannot_keep_its_job_off_an_unfit_node_has_failed(node: Node, example: Path) -> None:
    node.configure("http://127.0.0.1:9", deadline_s=-20)  # So long it tries.
    node.say("down", "")

    assert node.run(str(example), PATH=f"{example.parent}:{example.parent}/programs") == 1


@pytest.mark.parametrize("drain", [True, False])
def test_what_somebody_waits_for_at_a_terminal_is_cancelled_and_told_why(
    node: Node, gateway: ScriptedGateway, *, drain: bool
) -> None:
    node.say("batch", "0")
    gateway.answers = [refusal(drain=drain, hold=not drain)]

    assert node.run("prolog.sh") == 0
    reason = "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
    assert node.done == [
        *([DRAINED] if drain else []),
        f"scontrol notify 7 job 7 is cancelled, please start it again: {reason}",
        f"scontrol update jobid=7 admincomment=sunk: cancelled: {reason}",
        "scancel 7",
    ]


def test_who_waits_at_a_terminal_is_told_each_text_once(node: Node, gateway: ScriptedGateway) -> None:
    node.say("batch", "0")
    texts = ("3 Pods have to leave node gpu-1", "1 Pod has to leave node gpu-1")
    said: list[ScriptedAnswer] = [(202, {"locked": False, "say": text}) for text in texts]
    gateway.answers = [said[0], (202, {"locked": False}), said[1], YES]

    assert node.run("prolog.sh") == 0
    assert node.done == [f"scontrol notify 7 job 7 waits: {text}" for text in texts]
    assert [body["said"] for _, _, body in gateway.sent] == ["", texts[0], texts[0], texts[1]]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        pytest.param("batch", "1", None, id="a batch job"),
        pytest.param("down", "", "why", id="Slurm does not say"),
        pytest.param("job", "CANCELLED", "why", id="cancelled"),
    ],
)
def test_nobody_is_told_where_nobody_waits(
    node: Node, gateway: ScriptedGateway, file: str, text: str, said: str | None
) -> None:
    node.say("batch", "0")
    node.say(file, text)
    gateway.answers = [(202, {"locked": False, "say": "why"}), YES]

    assert node.run("prolog.sh") == 0
    assert node.done == []
    assert gateway.sent[-1][2].get("said") == said


@pytest.mark.parametrize("state", ["", "WHATEVER", "COMPLETED+WHATEVER"])
def test_a_state_that_cannot_be_read_is_that_of_a_job_that_runs(
    node: Node, gateway: ScriptedGateway, state: str
) -> None:
    node.say("job", state)
    node.say("node", "MIXED+DRAIN")
    gateway.answers = [refusal(drain=True, hold=False)]

    assert node.run("prolog.sh") == 0
    assert node.done in (["scontrol requeue 7"], ["scancel 7"])


def test_a_prolog_whose_job_has_no_lock_may_say_so(node: Node, gateway: ScriptedGateway) -> None:
    assert node.run("prolog.sh", SUNK_HOOKS_NOT_LOCKED="3") == 0
    gateway.answers = [refusal(drain=True, hold=False)]

    assert node.run("prolog.sh", SUNK_HOOKS_NOT_LOCKED="3") == 3
    assert node.done == [DRAINED, "scontrol requeue 7"]


OVER: ScriptedAnswer = (200, {"locked": False, "state": "CANCELLED"})


@with_and_without_curl
@pytest.mark.parametrize("said", [OVER, (200, {})], ids=["over", "of an older gateway"])
def test_a_job_that_is_over_before_its_lock_has_none(
    node: Node, gateway: ScriptedGateway, said: ScriptedAnswer
) -> None:
    gateway.answers = [said]
    node.say("job", "CANCELLED")

    assert node.run("prolog.sh", SUNK_HOOKS_NOT_LOCKED="3") == 3
    assert node.done == []


def test_a_job_that_only_the_gateway_takes_for_over_waits_for_its_lock(
    node: Node, gateway: ScriptedGateway
) -> None:
    gateway.answers = [OVER, OVER, (200, {"locked": True})]

    assert node.run("prolog.sh", SUNK_HOOKS_NOT_LOCKED="3") == 0
    assert len(gateway.sent) == 3
    assert node.done == []


GOOD = """PrologFlags = Alloc,DeferBatch
Prolog[0]   = /p
Epilog[0] = /e
PrologEpilogTimeout     = 50
BatchStartTimeout       = 80 sec
AuthType                = auth/slurm
AuthInfo                = ttl=80,cred_expire=80
"""
CREDENTIALS = "set AuthInfo=ttl=80,cred_expire=80 for SUNK_HOOKS_DEADLINE_S=20"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        pytest.param(GOOD, "", id="good"),
        pytest.param(GOOD.replace(" 50", " 65534"), "", id="unlimited"),
        pytest.param(GOOD.replace("DeferBatch", "X11"), "set PrologFlags=Alloc,DeferBatch", id="flags"),
        pytest.param(GOOD.replace("Batch", "Batch,Serial"), "PrologFlags has Serial", id="serial"),
        pytest.param(GOOD.replace("/p", "(null)"), "Prolog is not set", id="no prolog"),
        pytest.param(GOOD.replace(" 50", " 49"), "PrologEpilogTimeout=49: Slurm ends a prolog", id="short"),
        pytest.param(GOOD.replace("80 sec", "79 sec"), "set BatchStartTimeout=80", id="start"),
        pytest.param(GOOD.replace("ttl=80", "ttl=79"), CREDENTIALS, id="signed for too short"),
        pytest.param(GOOD.replace("expire=80", "expire=79"), CREDENTIALS, id="credentials too short"),
        pytest.param(GOOD.replace("ttl=80,cred_expire=80", "(null)"), CREDENTIALS, id="auth/slurm's own"),
        pytest.param(GOOD.replace("ttl=80,", ""), CREDENTIALS, id="auth/slurm's own ttl"),
        pytest.param(GOOD.replace("cred_", "use_client_ids,x").replace("=80,", "=080,"), "", id="120 s"),
        pytest.param(
            GOOD.replace("ttl=80,cred_expire=80", "socket=/m").replace("auth/slurm", "auth/munge"),
            "",
            id="MUNGE's own",
        ),
        pytest.param(GOOD + "EpilogTimeout = 20 sec\n", "EpilogTimeout=20: Slurm ends an epilog", id="26.05"),
    ],
)
def test_a_check_says_what_in_slurm_conf_breaks_the_promise(node: Node, config: str, said: str) -> None:
    node.say("config", "Configuration data as of now\n" + config)

    assert node.run("check.sh") == bool(said)
    assert said in node.stdout
    assert bool(node.stdout) == bool(said)


def test_a_check_says_what_is_wrong_with_the_settings(tmp_path: Path) -> None:
    node = Node(tmp_path, "https://gateway:8443", has_curl=False)
    node.configure("https://gateway:8443", authority="/nowhere")
    node.say("config", GOOD)
    (tmp_path / "token").write_text("")

    assert node.run("check.sh") == 1
    assert [line.split(": ")[1].split("=")[0] for line in node.stdout.splitlines()] == [
        "SUNK_HOOKS_URL",
        "SUNK_HOOKS_CA_FILE",
        "SUNK_HOOKS_TOKEN_FILE",
    ]
    assert node.run("check.sh", "conf") == 0

    node.configure("https://gateway:8443", authority="/nowhere", without_tls="http://gateway:8080")
    assert node.run("check.sh") == 1
    assert "SUNK_HOOKS_CA_FILE" not in node.stdout
