"""How `sunkctl` ends, with a test's own server in place of the API server."""

import json
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, cast

import pytest
from typer.testing import CliRunner, Result

from sunk_ctl.main import app

SAID: Final = "sunkctl: the API server does not know you: log in again, or name another --context\n"
STATUS: Final = {"kind": "Status", "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized"}
DEPLOYMENT: Final = {"metadata": {"name": "slurm-syncer", "namespace": "slurm"}}


class Server(ThreadingHTTPServer):
    """Answers so many questions with *given*, by the end of their paths, and all others with 401."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.given: dict[str, list[object]] = {}


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, server = self.path.partition("?")[0], cast("Server", self.server)
        left = next((some for end, some in server.given.items() if path.endswith(end)), list[object]())
        status, body = (200, left.pop(0)) if left else (401, STATUS)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own
        """Print nothing."""


@pytest.fixture
def server() -> Generator[Server]:
    """Yield a server that is at its port."""
    with Server() as made:
        thread = Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def run(server: Server, folder: Path, *words: str) -> Result:
    """Run `sunkctl` with a token."""
    found: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "a", "user": {"token": "made-up"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(found))
    command, *rest = words
    return CliRunner(env={"NO_PROXY": "*"}).invoke(app, [command, "--kubeconfig", str(file), *rest])


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("explain", "pod", "team-a/train"),
        ("events", "--follow"),
        ("top", "--count", "3"),
        ("ui",),
        ("drain", "d1", "--reason", "bad fan"),
        ("undrain", "d1", "--any"),
        ("reboot", "d1", "--reason", "bad fan"),
        ("support-bundle", "--file", "FOLDER/b.tar.gz"),
        ("doctor",),
        ("doctor", "FOLDER/values.yaml"),
    ],
    ids=" ".join,
)
def test_a_user_who_is_not_known_is_to_log_in_again_whatever_the_command(
    server: Server, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "values.yaml").write_text("clusterName: prod\nnats: {existingSecret: x}\n")

    done = run(server, tmp_path, *(word.replace("FOLDER", str(tmp_path)) for word in words))

    assert (done.exit_code, done.stderr) == (3, SAID)
    assert not list(tmp_path.glob("*.gz*"))


def test_no_bundle_is_written_where_a_token_ends_before_the_secrets_are_read(
    server: Server, tmp_path: Path
) -> None:
    page: dict[str, Any] = {"items": [DEPLOYMENT], "metadata": {}}
    server.given = {f"/{kind}": [page] for kind in ("deployments", "statefulsets", "daemonsets")}

    done = run(server, tmp_path, "support-bundle", "--file", str(tmp_path / "b.tar.gz"))

    assert (done.exit_code, "cannot read the Secrets of slurm" in done.stderr) == (3, True)
    assert not list(tmp_path.glob("*.gz*"))


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"is_unknown": True, "near": ["train"]}, 4, "no pod a/trian is known: did you mean train?"),
        ({"is_unknown": True}, 4, "no pod a/trian is known"),
        ({"near": ["train"]}, 4, "no pod a/trian is known: did you mean train?"),  # Of an older view.
        ({}, 0, ""),
    ],
)
def test_what_is_not_there_is_no_success_with_a_near_name_or_without(
    server: Server, tmp_path: Path, more: dict[str, object], status: int, said: str
) -> None:
    finding = {"what": "Slurm does not place trian"}
    part = {"cluster": "", "service": "placements on the bus", "findings": [finding]}
    server.given = {"/explain": [{"what": "pod", "name": "a/trian", "parts": [part], **more}]}

    done = run(server, tmp_path, "explain", "pod", "a/trian")

    assert (done.exit_code, done.stderr) == (status, f"sunkctl: {said}\n" if said else "")
    assert "Slurm does not place trian" in done.stdout
