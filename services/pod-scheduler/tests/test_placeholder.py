"""The placeholder's script under a real bash, against an HTTP server that tells what it was asked."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

import pytest

from sunk_hook_gateway.testing.certificates import Authority
from sunk_runtime.testing import WITHIN_S

TOKEN = "of-job-7"  # noqa: S105 - nobody's

SCRIPT = resources.files("sunk_pod_scheduler").joinpath("placeholder.sh").read_text()
TOLD = '    if [ "$2" = outcome ]; then kill -TERM $$; fi\n'

Answer = tuple[int, str]


class Gateway:
    """Answers as it is told to, and remembers who asked what."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._scheme = "http" if tls is None else "https"
        self.started: Answer = (200, "{}")
        self.outcome: Answer = (204, "")
        self.release: Answer = (202, '{"gone": false}')
        self.is_holding_outcome = True
        self.asked: list[tuple[str, str, str]] = []
        """Method and path, token, body."""
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gateway.serve(self)

            def do_POST(self) -> None:
                gateway.serve(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, call: BaseHTTPRequestHandler) -> None:
        body = call.rfile.read(int(call.headers.get("Content-Length") or 0)).decode()
        self.asked.append((f"{call.command} {call.path}", call.headers["Authorization"] or "", body))
        what = call.path.rpartition("/")[2]
        if what == "outcome":
            deadline = time.monotonic() + WITHIN_S
            while self.is_holding_outcome and time.monotonic() < deadline:
                time.sleep(0.01)
        answer: Answer = getattr(self, what)
        try:
            call.send_response(answer[0])
            call.send_header("Content-Length", str(len(answer[1])))
            call.end_headers()
            call.wfile.write(answer[1].encode())
        except OSError:
            return  # The caller has gone.

    def count(self, what: str) -> int:
        return sum(path.endswith(f"/{what}") for path, _, _ in self.asked)

    def close(self) -> None:
        self.is_holding_outcome = False
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(params=["bash alone", "curl, for TLS"])
def authority(request: pytest.FixtureRequest, tmp_path: Path) -> Authority | None:
    """What vouches for the gateway; None: it speaks no TLS."""
    return None if request.param == "bash alone" else Authority(tmp_path)


@pytest.fixture
def gateway(authority: Authority | None) -> Iterator[Gateway]:
    found = Gateway(authority.server() if authority else None)
    yield found
    found.close()


@pytest.fixture
def path(authority: Authority | None, tmp_path: Path) -> str:
    """Where the script finds its programs."""
    for name in ("bash", "sleep", *(("curl",) if authority else ())):
        found = shutil.which(name)
        assert found
        (tmp_path / name).symlink_to(found)
    return str(tmp_path)


@pytest.fixture
def start(gateway: Gateway, authority: Authority | None, path: str) -> Iterator[Start]:
    """Starts the script; what it is answered from its first call on can be said before."""
    env = {
        "PATH": path,
        "SUNK_PLACEHOLDER_TOKEN": TOKEN,
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "gpu-000-012",
        **({"CURL_CA_BUNDLE": str(authority.file)} if authority else {}),
    }
    started: list[subprocess.Popen[bytes]] = []

    def run(url: str = gateway.url, text: str = SCRIPT, **more: str) -> "subprocess.Popen[bytes]":
        argv, its_own = ["bash", "-c", text], {**more, **env, "SUNK_HOOKS_URL": url}
        started.append(subprocess.Popen(argv, env=its_own, start_new_session=True))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(is_done: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_the_script_announces_its_node_with_its_token_and_shows_the_token_to_nobody(
    gateway: Gateway, start: Start, authority: Authority | None
) -> None:
    script = start()
    until(lambda: gateway.count("outcome") == 1)

    assert gateway.asked == [
        ("POST /v1/jobs/7/started", f"Bearer {TOKEN}", '{"node":"gpu-000-012"}'),
        ("GET /v1/jobs/7/outcome", f"Bearer {TOKEN}", ""),
    ]
    listed = subprocess.run(
        ["ps", "-o", "args=", "--sid", str(script.pid)], check=True, capture_output=True, text=True
    )
    assert ("curl" in listed.stdout.split()) is (authority is not None)
    assert TOKEN not in listed.stdout.replace(resources.files("sunk_pod_scheduler").name, "")


def settings(file: Path, url: str, *, authority: Path | None = None, without_tls: str = "") -> str:
    """Write the settings of a node's hooks, as helm/slurm has them, at once; return the file's path."""
    lines = [f"SUNK_HOOKS_URL={url}"]
    lines += [f"SUNK_HOOKS_CA_FILE={authority}"] if authority else []
    lines += [f"SUNK_HOOKS_URL_WITHOUT_TLS={without_tls}"] if without_tls else []
    new = file.with_suffix(".new")
    new.write_text("\n".join([*lines, ""]))
    new.rename(file)
    return str(file)


@pytest.fixture
def plain() -> Iterator[Gateway]:
    found = Gateway(None)
    yield found
    found.close()


def test_the_nodes_own_settings_win_over_those_of_the_submission(
    tmp_path: Path, start: Start, authority: Authority | None, gateway: Gateway, plain: Gateway
) -> None:
    node = settings(tmp_path / "hooks.env", gateway.url, authority=authority.file if authority else None)
    start(plain.url, SUNK_HOOKS_ENV=node)

    until(lambda: gateway.count("outcome") == 1)
    assert plain.asked == []


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not known yet"])
def test_without_the_authority_it_calls_without_tls_while_the_gateway_answers_both(
    tmp_path: Path, start: Start, plain: Gateway, *, is_known: bool
) -> None:
    known = Authority(tmp_path, "known")
    encrypted = Gateway(known.server())
    (tmp_path / "curl").unlink(missing_ok=True)
    (tmp_path / "curl").symlink_to(shutil.which("curl") or "")
    file = known.file if is_known else tmp_path / "nothing"
    node = settings(tmp_path / "hooks.env", encrypted.url, authority=file, without_tls=plain.url)
    start("http://127.0.0.1:9", SUNK_HOOKS_ENV=node)

    called, other = (encrypted, plain) if is_known else (plain, encrypted)
    until(lambda: called.count("outcome") == 1)
    assert other.asked == []
    encrypted.close()


@pytest.mark.parametrize("is_there", [True, False], ids=["another authority", "nothing listens"])
def test_while_tls_is_turned_on_or_off_a_call_that_tls_does_not_carry_goes_without_it(
    tmp_path: Path, start: Start, plain: Gateway, *, is_there: bool
) -> None:
    known, other = Authority(tmp_path, "known"), Authority(tmp_path, "other")
    encrypted = Gateway(other.server())
    url = encrypted.url if is_there else "https://127.0.0.1:9"
    (tmp_path / "curl").unlink(missing_ok=True)
    (tmp_path / "curl").symlink_to(shutil.which("curl") or "")
    node = settings(tmp_path / "hooks.env", url, authority=known.file, without_tls=plain.url)
    script = start("http://127.0.0.1:9", SUNK_HOOKS_ENV=node)
    until(lambda: plain.count("outcome") == 1)
    assert encrypted.asked == []

    # Once TLS carries it, the next call goes by TLS again.
    settings(tmp_path / "hooks.env", encrypted.url, authority=other.file, without_tls=plain.url)
    plain.is_holding_outcome = False
    until(lambda: encrypted.count("outcome") == 1)
    encrypted.outcome, encrypted.is_holding_outcome = (200, '{"exit_code": 3}'), False
    assert script.wait(WITHIN_S) == 3
    encrypted.close()


def test_a_gateway_that_moves_is_found_again(tmp_path: Path, start: Start, plain: Gateway) -> None:
    before = Gateway(None)
    node = settings(tmp_path / "hooks.env", before.url)
    script = start(SUNK_HOOKS_ENV=node)
    until(lambda: before.count("outcome") == 1)

    settings(tmp_path / "hooks.env", plain.url)
    before.close()
    until(lambda: plain.count("outcome") == 1)
    plain.outcome = (200, '{"exit_code": 3}')
    plain.is_holding_outcome = False
    assert script.wait(WITHIN_S) == 3


LIES = {
    "a state": "JobState=COMPLETED",
    "lines": 'x\n{"exit_code": 3}\n200\n',
    "code": '"}],"exit_code": 3,"x":{"$(>pwned)`>pwned`\';>pwned;\\',  # On the script's path is no `touch`.
}
LONG = 64 * 1024
"""Linux allows one variable twice as much."""
READ = (
    "is_second",
    "status",
    "body",
    "ending",
    "pipe",
    "poll",
    "with",
    "tries",
    "ended",
    "http",
    "line",
    "code",
)
"""The script's own variables."""
IGNORED = (
    *(f"SLURM_JOB_{name}" for name in ("NAME", "COMMENT", "EXTRA", "CONSTRAINTS")),
    *("SLURM_SUBMIT_DIR", "SLURM_WCKEY", "SLURM_CONF", "SPANK_SUNK_HOOKS_URL", "SPANK_SLURM_JOB_ID"),
    *("ENV", "IFS", "LD_PRELOAD", "LD_LIBRARY_PATH"),
)
"""What Slurm, a shell or the loader may find in a job's environment.

Not ``BASH_ENV``: bash runs what it says before the script. That is no fault, for the script runs with the
rights of the user who sets it.
"""


@pytest.mark.parametrize(
    "lie",
    [
        *(pytest.param(lie, id=name) for name, lie in LIES.items()),
        *(pytest.param(lie * (LONG // len(lie)), id=f"{name}, 64 kB of it") for name, lie in LIES.items()),
    ],
)
def test_neither_what_a_job_is_called_nor_what_a_user_sets_is_read(
    gateway: Gateway, start: Start, tmp_path: Path, lie: str
) -> None:
    variables = dict.fromkeys((*READ, *IGNORED), lie)
    script = start(text=f"cd {tmp_path}\n{SCRIPT}", **variables, BASH_REMATCH=lie, BASHOPTS="extglob")
    until(lambda: gateway.count("outcome") == 1)

    assert script.poll() is None
    assert gateway.asked == [
        ("POST /v1/jobs/7/started", f"Bearer {TOKEN}", '{"node":"gpu-000-012"}'),
        ("GET /v1/jobs/7/outcome", f"Bearer {TOKEN}", ""),
    ]
    gateway.outcome, gateway.is_holding_outcome = (200, '{"exit_code": 5}'), False
    assert script.wait(WITHIN_S) == 5
    assert not (tmp_path / "pwned").exists()


@pytest.fixture
def full() -> Iterator[str]:
    """The address of a server that takes no connection: who connects waits, as for a machine that is gone."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        there = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.settimeout(0)
            one.connect_ex(there)
        yield f"http://127.0.0.1:{there[1]}"
        for one in waiting:
            one.close()


@pytest.mark.parametrize("authority", ["bash alone"], indirect=True)
def test_a_connect_that_is_not_answered_is_given_up_and_tried_again(full: str, start: Start) -> None:
    script, seen = start(full), set[str]()

    def has_called_anew() -> bool:
        seen.update(children(script))
        return len(seen) > 2  # One was for the pipe, another waited for its connect.

    until(has_called_anew)

    assert script.poll() is None


def children(script: "subprocess.Popen[bytes]") -> set[str]:
    """Return the bash processes that the script has begun."""
    argv = ["ps", "-o", "pid=,comm=", "--ppid", str(script.pid)]
    listed = subprocess.run(argv, check=False, capture_output=True, text=True)
    return {line.split()[0] for line in listed.stdout.splitlines() if line.split()[1] == "bash"}


@pytest.mark.parametrize("code", [0, 3, 137])
def test_the_job_ends_as_its_pod_did(gateway: Gateway, start: Start, code: int) -> None:
    script = start()
    until(lambda: gateway.count("outcome") == 1)
    gateway.outcome = (200, json.dumps({"exit_code": code}))
    gateway.is_holding_outcome = False

    assert script.wait(WITHIN_S) == code


def test_a_gateway_that_is_away_or_does_not_know_the_job_yet_ends_nothing(
    gateway: Gateway, start: Start
) -> None:
    gateway.started = (404, '{"error": "job 7 is no placeholder"}')
    script = start()
    until(lambda: gateway.count("started") >= 2)
    gateway.started = (200, "{}")
    gateway.outcome = (503, '{"retry": true}')
    gateway.is_holding_outcome = False
    until(lambda: gateway.count("outcome") >= 2)

    assert script.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=["TERM", "USR1"])
@pytest.mark.parametrize("whom", ["the script only", "its children too"])
def test_told_to_end_the_script_has_the_pod_deleted_and_stays_until_it_is_gone(
    gateway: Gateway, start: Start, number: signal.Signals, whom: str
) -> None:
    script = start()
    until(lambda: gateway.count("outcome") == 1)
    if whom == "the script only":
        script.send_signal(number)
    else:
        os.killpg(script.pid, number)
    until(lambda: gateway.count("release") >= 2)

    assert script.poll() is None
    assert gateway.count("outcome") == 1  # No new poll once it is told to end.

    gateway.release = (200, '{"gone": true}')

    assert script.wait(WITHIN_S) == 0


def moments() -> list[str]:
    """Return the lines of `try` before which its script may be told to end while it has no answer yet."""
    begin = SCRIPT.index("try() {")
    lines = SCRIPT[begin : SCRIPT.index("    ended=$?", begin)].splitlines()
    return [line for line in lines if re.match(r" {4}(?!local|done|fi)[^ )#]", line)]


@pytest.mark.parametrize("line", moments())
def test_told_to_end_at_any_moment_of_its_poll_the_script_does_not_wait_for_the_poll(
    gateway: Gateway, start: Start, line: str
) -> None:
    assert SCRIPT.count(f"{line}\n") == 1
    script = start(text=SCRIPT.replace(f"{line}\n", f"{TOLD}{line}\n"))
    until(lambda: gateway.count("release") >= 1)
    gateway.release = (200, '{"gone": true}')

    assert script.wait(WITHIN_S) == 0
    assert gateway.is_holding_outcome


def test_a_second_term_does_not_cut_the_release_off(gateway: Gateway, start: Start) -> None:
    script = start()
    until(lambda: gateway.count("outcome") == 1)
    gateway.release = (503, '{"retry": true}')
    os.killpg(script.pid, signal.SIGTERM)
    until(lambda: gateway.count("release") >= 1)
    os.killpg(script.pid, signal.SIGTERM)
    os.killpg(script.pid, signal.SIGTERM)
    asked = gateway.count("release")
    until(lambda: gateway.count("release") >= asked + 2)

    assert script.poll() is None

    gateway.release = (200, '{"gone": true}')

    assert script.wait(WITHIN_S) == 0


def test_terms_that_fall_on_the_beginning_of_its_calls_do_not_end_the_script(
    gateway: Gateway, start: Start
) -> None:
    gateway.release = (503, '{"retry": true}')
    script = start()
    until(lambda: gateway.count("outcome") == 1)
    for wanted in range(1, 10):
        os.killpg(script.pid, signal.SIGTERM)  # It cuts a pause short, and the next call begins right then.
        os.killpg(script.pid, signal.SIGTERM)
        until(lambda wanted=wanted: gateway.count("release") >= wanted)

    gateway.release = (200, '{"gone": true}')

    assert script.wait(WITHIN_S) == 0


def test_told_to_end_before_it_could_announce_itself_the_script_only_releases(
    gateway: Gateway, start: Start
) -> None:
    gateway.started = (503, '{"retry": true}')
    gateway.release = (200, '{"gone": true}')
    script = start()
    until(lambda: gateway.count("started") >= 1)
    os.killpg(script.pid, signal.SIGTERM)

    assert script.wait(WITHIN_S) == 0
    assert gateway.count("outcome") == 0
