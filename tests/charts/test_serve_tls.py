"""The script that puts TLS in front of slurmrestd, on a real stunnel."""

import os
import signal
import ssl
import subprocess
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import httpx
import pytest

from sunk_hook_gateway.testing.certificates import Authority
from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import require
from sunk_lab.ports import free_port
from sunk_lab.processes import wait_for

SCRIPT: Final = Path(__file__).parents[2] / "helm/slurm/files/scripts/serve-tls"


class Speaker(BaseHTTPRequestHandler):
    """What speaks no TLS."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


class Front:
    """The script with its certificate, in front of a server."""

    def __init__(self, folder: Path, behind: int) -> None:
        self.authority = Authority(folder)
        self.authority.issue()
        self.port = free_port()
        self.errors = folder / "stderr"
        argv = ["bash", SCRIPT, str(self.port), f"127.0.0.1:{behind}", folder, folder]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(argv, stderr=errors, start_new_session=True)

    def stunnel(self) -> int:
        """Return the process id of stunnel."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (found,) = [
            int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("stunnel")
        ]
        return found

    def says(self) -> str:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        url = f"https://127.0.0.1:{self.port}/"
        try:
            with httpx.Client(verify=context, trust_env=False, timeout=10) as http:
                return http.get(url).text
        except httpx.HTTPError as error:
            raise LabError(f"{error!r}: {self.errors.read_text()}") from error

    def shown(self) -> str:
        """Return the certificate that it shows."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))


@pytest.fixture
def front(tmp_path: Path) -> Generator[Front]:
    require({"usr/bin/stunnel|usr/bin/stunnel4": "stunnel4"}, report=print)
    with ThreadingHTTPServer(("127.0.0.1", 0), Speaker) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        found = Front(tmp_path, server.server_port)
        try:
            wait_for("it to serve", lambda: found.says() == "hi")
            yield found
        finally:
            if found.process.poll() is None:
                os.killpg(found.process.pid, signal.SIGKILL)
            found.process.wait()
            server.shutdown()
            thread.join()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")  # Python's own clients no longer speak the old ones.
def test_what_comes_without_tls_or_by_an_old_one_is_refused(front: Front) -> None:
    old = ssl.create_default_context(cafile=str(front.authority.file))
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")

    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{front.port}/", trust_env=False, timeout=10)
    with pytest.raises(httpx.HTTPError), httpx.Client(verify=old, trust_env=False, timeout=10) as http:
        http.get(f"https://127.0.0.1:{front.port}/")


def test_a_renewed_certificate_is_shown_and_a_broken_one_is_not(front: Front) -> None:
    before, stunnel = front.shown(), front.stunnel()
    file, key_file = front.authority.issue()
    renewed = file.read_text()

    wait_for("the renewed certificate", lambda: front.shown() == renewed)
    assert renewed != before
    key_file.write_bytes(b"no key")
    wait_for("it to look", lambda: front.errors.read_text().count("Reading configuration") >= 3)
    assert (front.says(), front.shown(), front.stunnel()) == ("hi", renewed, stunnel)


@pytest.mark.parametrize("of", ["script", "stunnel"])
def test_the_end_of_either_is_that_of_both(front: Front, of: str) -> None:
    stunnel = front.stunnel()
    os.kill(front.process.pid if of == "script" else stunnel, signal.SIGTERM)

    front.process.wait(60)
    assert not Path(f"/proc/{stunnel}").exists()
