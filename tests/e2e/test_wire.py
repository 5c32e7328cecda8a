"""What a program that reads the network finds while the story goes on: with TLS, and without it.

What must stay true: with TLS of NATS and of the hooks, no password and no token of a hook crosses in clear.
What slurmrestd is told and what Slurm's daemons tell each other has no TLS: docs/security.md says so, by this
test.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from sunk_lab.reserved import reserved_stack
from sunk_lab.slurm.pods import SLURMCTLD_PORT, SLURMD_PORT, SLURMRESTD_PORT, TOKEN_FILE
from sunk_lab.sniffer import Capture, Way, sniffing
from sunk_lab.stack.services import HOOKS_TLS_PORT, PORTS
from sunk_lab.stack.stack import Stack
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import cordon, lock
from sunk_pod_scheduler.placement import tokens

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(1800)]
ATTEMPTS: Final = 3
SERVER_OF_PORT: Final[Mapping[int, str]] = {
    PORTS["hook-gateway"]: "hooks",
    HOOKS_TLS_PORT: "hooks",
    SLURMRESTD_PORT: "slurmrestd",
    SLURMCTLD_PORT: "slurmctld",
    SLURMD_PORT: "slurmd",
}


@dataclass(frozen=True)
class Heard:
    """What was found on the wire: servers by secret."""

    secrets: Mapping[str, str]
    servers: Mapping[str, set[str]]
    capture: Capture

    def of(self, what: str) -> set[str]:
        """Return to or from which servers a secret went whose name begins with *what*."""
        names = [name for name in self.secrets if name.startswith(what)]
        assert names, f"no secret is called {what}: {sorted(self.secrets)}"
        return set[str]().union(*(self.servers[name] for name in names))


def listen(stack: Stack, folder: Path) -> Heard:
    """Tell the story, with every service started anew: passwords are sent when one connects."""
    stage = Stage(stack)
    secrets = stack.credentials()
    for node in stage.nodes:
        secrets[f"hook token of {node.node}"] = stage.in_slurmd(node, "cat", TOKEN_FILE).strip()
    name = fresh("secret")
    with sniffing(folder) as capture:
        for service in PORTS:
            stack.services.kill(service)
        stack.services.start_all()
        cordon(stage)
        lock(stage)
        stage.deeds.kube.create(manifests.placed_pod(name))
        stage.deeds.pod_runs(name)
        pod = stage.deeds.kube.get("Pod", name)
        stage.deeds.kube.delete("Pod", name)
        stage.deeds.pod_gone(name)
    assert pod is not None
    for attempt in range(ATTEMPTS):
        made = tokens.token(stack.placement_key, pod["metadata"]["uid"], attempt)
        secrets[f"placeholder token {attempt}"] = made
    known = {**SERVER_OF_PORT, urlsplit(stack.nats_url).port or 0: "NATS"}

    def server(way: Way) -> str:
        ports = (way.source_port, way.target_port)
        return next((known[port] for port in ports if port in known), f"another one: {way}")

    found = {what: {server(way) for way in capture.carried(text)} for what, text in secrets.items()}
    return Heard(secrets, found, capture)


@pytest.fixture(scope="module", params=[True, False], ids=["encrypted", "clear"])
def heard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bool, Heard]:
    with reserved_stack(is_encrypted=request.param) as stack:
        return request.param, listen(stack, tmp_path_factory.mktemp("sniffer"))


def test_passwords_and_tokens_of_hooks_are_heard_without_tls_and_never_with_it(
    heard: tuple[bool, Heard],
) -> None:
    is_encrypted, found = heard

    assert found.capture.lost == 0
    assert found.of("password of") == (set() if is_encrypted else {"NATS"})
    assert found.of("hook token") == (set() if is_encrypted else {"hooks"})


def test_tokens_of_kubernetes_are_never_heard(heard: tuple[bool, Heard]) -> None:
    assert heard[1].of("token of account") == set()


def test_what_slurm_is_told_is_heard_with_and_without_tls(heard: tuple[bool, Heard]) -> None:
    is_encrypted, found = heard

    # slurmrestd passes them on to slurmctld on the same node here, which crosses no interface of ours.
    assert found.of("token of the syncer") == {"slurmrestd"}
    assert found.of("token of Slurm user") == {"slurmrestd"}
    clear = {"slurmrestd", "slurmd"}
    assert found.of("placeholder token") == clear | (set() if is_encrypted else {"hooks", "NATS"})
