"""What slurmrestd sends after its answer to an error, and that it is nobody's answer: both real releases.

Source: slurmrestd 26.05.5, measured: a second answer of the same status follows, in words for a browser;
24.11 sends none. Both end the connection, and say so in the first head.
"""

from urllib.parse import urlsplit

import anyio
import pytest

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_24_11
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import INVALID_NODE_NAME, SlurmRejectedError
from sunk_slurm.server import MAX_CONNECTIONS
from sunk_slurm.tokens import KeyTokens

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

ASKED = (
    ("GET", "/slurm/v0.0.42/nosuch", ""),
    ("GET", "/slurm/v0.0.1/nodes/", ""),
    ("PUT", "/slurm/v0.0.42/node/node01", "{}"),
    ("GET", "/slurm/v0.0.42/node/node01", ""),
    ("GET", "/slurm/v0.0.42/node/node01?flags=NONSENSE", ""),
    ("GET", "/slurm/v0.0.42/nodes/?flags=ALL,DETAIL", ""),
    ("POST", "/slurm/v0.0.42/node/nosuch", '{"state": ["DRAIN"], "reason": "x"}'),
    ("POST", "/slurm/v0.0.42/node/node01", '{"state": ["BOGUS"]}'),
    ("POST", "/slurm/v0.0.42/node/node01", "{"),
    ("GET", "/slurm/v0.0.42/job/999999", ""),
    ("DELETE", "/slurm/v0.0.42/job/999999", ""),
    ("GET", "/openapi/v3", ""),
)


async def said(url: str, method: str, target: str, body: str, token: str) -> tuple[bytes, bytes]:
    """Return the head of the first answer, and what comes after that answer until a moment has passed."""
    parts = urlsplit(url)
    lines = (f"{method} {target} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}")
    more = ("Content-Type: application/json", f"Content-Length: {len(body)}", "", body)
    got = b""
    async with await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as stream:
        await stream.send("\r\n".join((*lines, *more)).encode())
        while True:
            with anyio.move_on_after(30 if b"\r\n\r\n" not in got else 0.5) as waited:
                try:
                    got += await stream.receive()
                except anyio.EndOfStream:
                    break
            if waited.cancelled_caught:
                break
    head, _, rest = got.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return head.lower(), rest[int(fields.get(b"content-length", b"0")) :]


async def test_more_than_an_answer_comes_only_where_the_connection_is_said_to_end(
    cluster: HostSlurm,
) -> None:
    heard = [await said(cluster.url, *asked, cluster.token()) for asked in ASKED]
    heard.append(await said(cluster.url, *ASKED[3], "no token"))
    seconds = [(head, after) for head, after in heard if after]

    assert all(b"\r\nconnection: close" in head for head, _ in seconds), seconds
    assert all(after.startswith(b"HTTP/1.1 ") for _, after in seconds)
    assert bool(seconds) is (cluster.release != SLURM_24_11)


async def test_what_comes_after_an_error_is_nobodys_answer(cluster: HostSlurm) -> None:
    async with (
        SlurmClient(cluster.url, KeyTokens(cluster.jwt_key)) as client,
        anyio.create_task_group() as tasks,
    ):

        async def ask() -> None:
            for _ in range(10):
                with pytest.raises(SlurmRejectedError) as refused:
                    await client.drain("nosuch", "k8s: test")
                looked = [await client.node(name) for name in ("node01", "nosuch", "node02")]
                assert refused.value.number == INVALID_NODE_NAME
                assert [node and node.name for node in looked] == ["node01", None, "node02"]

        for _ in range(MAX_CONNECTIONS):
            tasks.start_soon(ask)
