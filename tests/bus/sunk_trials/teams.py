# pyright: reportUnknownMemberType=false
"""Our bus and that of other teams (ADR 0034), as two real nats-servers with the users of the chart."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from nats.aio.client import Client

from sunk_events import subjects
from sunk_events.locks import LockState
from sunk_events.permissions import KEEPER, LINK, configuration, users
from sunk_events.teams import (
    DOMAIN,
    SUBSCRIBER,
    Limits,
    link_configuration,
    team_configuration,
    team_users,
)
from sunk_lab.nats import NatsServer
from sunk_lab.nats_cluster import NatsCluster
from sunk_lab.ports import free_ports
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.mirroring.decision import Step
from sunk_runtime.mirroring.keeping import keep, wanted
from sunk_runtime.testing import WITHIN_S, until

CLUSTER: Final = "c1"
FACTS: Final = subjects.fact_stream(CLUSTER)
LOCKS: Final = subjects.bucket_stream(subjects.bucket(CLUSTER, LockState))
KEY: Final = subjects.key_subject(subjects.bucket(CLUSTER, LockState), "n1")
FACT: Final = "sunk.ev.c1.slurm.node.n1.drained"
OTHER: Final = f"{SUBSCRIBER}-billing"
TEAM_USERS: Final = team_users([CLUSTER], ["billing"])
PASSWORDS: Final = {user.name: f"secret-of-{user.name}" for user in (*users([CLUSTER]), *TEAM_USERS)}


class Servers:
    """Ours, and that of other teams."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        port = free_ports(1)
        self._folder = folder
        self.without_link = NatsServer(folder / "ours", extra=configuration(users([CLUSTER]), PASSWORDS))
        extra = configuration(users([CLUSTER]), PASSWORDS) + link_configuration(f"127.0.0.1:{port}")
        self.ours = NatsServer(folder / "ours", extra=extra)
        self.theirs = team_server(folder, port, limits)

    @asynccontextmanager
    async def bus(self, server: NatsServer | NatsCluster, user: str) -> AsyncGenerator[Bus]:
        file = self._folder / user
        file.write_text(PASSWORDS[user])
        async with connect(BusSettings(url=server.url, user=user, password_file=file), user) as bus:
            yield bus

    @asynccontextmanager
    async def mirrored(self) -> AsyncGenerator[tuple[Bus, Bus]]:
        """Give `admin` on ours and `keeper` on theirs, when every mirror is there."""
        async with self.bus(self.ours, "admin") as admin, self.bus(self.theirs, KEEPER) as keeper:
            await admin.provision(CLUSTER, BusSettings())
            await admin.publish(KEY, b"locked")
            await admin.publish(FACT, b"{}")
            await mirror(keeper)
            await until(lambda: has(keeper, FACTS, 1))
            await until(lambda: has(keeper, LOCKS, 1))
            yield admin, keeper

    def team(self, user: str = SUBSCRIBER) -> AbstractAsyncContextManager[Client]:
        """Connect as another team's program."""
        return team_on(self.theirs, user)


@asynccontextmanager
async def team_on(server: NatsServer, user: str = SUBSCRIBER) -> AsyncGenerator[Client]:
    """Connect to *server* as another team's program, with nothing of ours in between."""
    client = Client()

    async def ignore(_: Exception) -> None:
        """A denial is what is tried."""

    prefix = subjects.inbox(user).encode()
    try:
        await client.connect(
            server.url,
            user=user,
            password=PASSWORDS[user],
            inbox_prefix=prefix,
            error_cb=ignore,
            connect_timeout=60,
            allow_reconnect=False,
        )
        yield client
    finally:
        await client.close()


def team_server(folder: Path, port: int, limits: Limits | None = None) -> NatsServer:
    """Return the server of other teams, whose link goes to *port*."""
    link = f"nats-leaf://{LINK}:{PASSWORDS[LINK]}@127.0.0.1:{port}"
    extra = team_configuration(TEAM_USERS, PASSWORDS, link, limits)
    return NatsServer(folder / "theirs", domain=DOMAIN, extra=extra)


async def mirror(keeper: Bus) -> list[Step]:
    """Keep all mirrors once the link is there."""
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                return [await keep(keeper, stream) for stream in mirrors()]
            except TransientError:
                await anyio.sleep(0.1)  # The link is not there yet.


def mirrors() -> list[Any]:
    return wanted(CLUSTER, facts_max_bytes=1 << 20, facts_max_age_s=3600)


async def last_seq(bus: Bus, stream: str) -> int:
    return (await bus.js.stream_info(stream)).state.last_seq


async def has(bus: Bus, stream: str, sequence: int) -> bool:
    return await last_seq(bus, stream) >= sequence
