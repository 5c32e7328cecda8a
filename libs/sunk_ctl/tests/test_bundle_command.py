"""`sunkctl support-bundle` where nothing answers, and where it is killed."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sunk_ctl.main import app
from sunk_lab.processes import wait_for


@pytest.fixture
def silent(tmp_path: Path) -> Generator[Path]:
    """Yield the kubeconfig of an API server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = {"server": f"http://127.0.0.1:{server.getsockname()[1]}"}
        found: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "a",
            "clusters": [{"name": "a", "cluster": cluster}],
            "users": [{"name": "a", "user": {"token": "made-up"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(found))
        yield file


def test_an_api_server_that_does_not_answer_leaves_no_file(silent: Path, tmp_path: Path) -> None:
    words = [
        "support-bundle",
        "--kubeconfig",
        str(silent),
        "--file",
        str(tmp_path / "b.tar.gz"),
        "--timeout",
        "1",
    ]

    done = CliRunner(env={"NO_PROXY": "*"}).invoke(app, words)

    assert done.exit_code == 5
    assert "no answer within 1 s: try again, or raise --timeout" in done.stderr
    assert not list(tmp_path.glob("*.gz*"))


def test_one_that_is_killed_is_in_the_way_of_no_other(silent: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    words = ["support-bundle", "--kubeconfig", str(silent), "--file", str(file)]
    command = [Path(sys.executable).with_name("sunkctl"), *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_for("the file that is begun", lambda: list(tmp_path.glob("*.part")))
        process.send_signal(signal.SIGKILL)

    again = CliRunner(env={"NO_PROXY": "*"}).invoke(app, [*words, "--timeout", "1"])

    assert not file.exists()
    assert again.exit_code == 5, again.stderr
