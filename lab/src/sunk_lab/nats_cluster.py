"""A cluster of three nats-servers on this machine, so that a stream can have three replicas.

Each is a process of its own and keeps its ports and its store over restarts. JetStream answers only once the
three have chosen a leader among themselves, which `NatsCluster.start` waits for.

Source: nats-server 2.15, clustering, monitoring endpoint ``/jsz``, signal USR2 (lame duck mode).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import httpx

from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_ports
from sunk_lab.processes import wait_for

SIZE: Final = 3


class NatsCluster:
    """Three nats-servers; everything they have is in *folder*. As a context they run meanwhile."""

    def __init__(
        self, folder: Path, *, sync: str = "", extra: str = "", each: Sequence[str] = ("", "", "")
    ) -> None:
        """Describe a cluster; `start` starts it.

        Args:
            folder: Configuration and stores. Whoever made it removes it.
            sync: When each server writes to the disk, as for `NatsServer`.
            extra: More configuration of each server.
            each: More of the first, the second, and the third.
        """
        first = _first_port(folder)
        routes = ", ".join(f'"nats-route://127.0.0.1:{first + SIZE + number}"' for number in range(SIZE))
        self._monitors: Final = [first + 2 * SIZE + number for number in range(SIZE)]
        self.servers: Final = [
            NatsServer(
                folder / f"n{number}",
                port=first + number,
                sync=sync,
                extra=_member(number, first + SIZE + number, routes, self._monitors[number])
                + extra
                + each[number],
            )
            for number in range(SIZE)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()

    @property
    def url(self) -> str:
        """Return where clients connect: all three addresses, with commas between."""
        return ",".join(server.url for server in self.servers)

    def start(self) -> None:
        """Start those that do not run and return when JetStream answers.

        Raises:
            LabError: A server does not start, or they find no leader.
        """
        for server in self.servers:
            server.start()
        wait_for("the NATS cluster to choose a leader", self.leader, pause_s=0.02)

    def stop(self) -> None:
        """End all of them orderly; what they stored stays."""
        for server in self.servers:
            server.stop()

    def leader(self) -> NatsServer | None:
        """Return the server that leads JetStream, if all that run agree upon one that runs."""
        running = [number for number in range(SIZE) if self.servers[number].pid is not None]
        seen = {self._leader_seen_by(number) for number in running}
        if len(seen) != 1 or len(running) <= SIZE // 2:
            return None
        name = seen.pop()
        return next((self.servers[number] for number in running if name == f"n{number}"), None)

    def _leader_seen_by(self, number: int) -> str:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self._monitors[number]}/jsz", timeout=2)
            return str(answer.json().get("meta_cluster", {}).get("leader", ""))
        except (httpx.HTTPError, ValueError):
            return ""


def _first_port(folder: Path) -> int:
    """Return the first port of the cluster in *folder*: the same each time."""
    kept = folder / "ports.json"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(free_ports(3 * SIZE)))
    return int(json.loads(kept.read_text()))


def _member(number: int, port: int, routes: str, monitor: int) -> str:
    """Return the configuration of one member."""
    return (
        f'server_name: "n{number}"\n'
        f'http: "127.0.0.1:{monitor}"\n'
        f'cluster {{ name: "lab", listen: "127.0.0.1:{port}", routes: [{routes}] }}\n'
        # Its clients leave one after the other within this time, the first at once.
        'lame_duck_duration: "30s"\n'
        'lame_duck_grace_period: "0s"\n'
    )
