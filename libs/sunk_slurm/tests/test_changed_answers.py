"""Answers of a real slurmrestd, changed at random with their form in mind, are read or refused; no other end.

`./task test:nightly` takes many more examples.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, cast

import anyio
import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_lab.odd_json import changed, few_and_many, fuzzed
from sunk_lab.slurm.host import HostSlurm
from sunk_runtime.errors import SunkError
from sunk_slurm.client import SlurmClient
from sunk_slurm.tokens import KeyTokens

pytestmark = pytest.mark.lab

LINE: Final = 2000
READS: Final[Mapping[str, Callable[[SlurmClient, int], Awaitable[object]]]] = {
    "nodes": lambda slurm, _: slurm.nodes(),
    "node": lambda slurm, _: slurm.node("node01"),
    "job": lambda slurm, number: slurm.job(number),
    "job_states": lambda slurm, _: slurm.job_states(),
    "partitions": lambda slurm, _: slurm.partitions(),
    "reservations": lambda slurm, _: slurm.reservations(),
    "diag": lambda slurm, _: slurm.diag(),
}


class Recorder(httpx.AsyncHTTPTransport):
    """Keeps what is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, bytes] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        body = await answer.aread()
        await answer.aclose()
        self.found[request.url.path] = body
        return httpx.Response(answer.status_code, headers=answer.headers, content=body)


@pytest.fixture(scope="module")
def recorded(cluster: HostSlurm) -> tuple[int, dict[str, bytes]]:
    """An array that has begun, and each answer about it by its path."""
    cluster.exec(
        "scontrol", "create", "reservation", "user=root", "starttime=now", "duration=9", "nodes=node02"
    )
    job = int(cluster.exec("sbatch", "--parsable", "-a", "1-9%1", "-o", "/dev/null", "--wrap", "sleep 60"))
    recorder = Recorder()

    async def record() -> None:
        async with SlurmClient(cluster.url, KeyTokens(cluster.jwt_key), transport=recorder) as slurm:
            for read in READS.values():
                await read(slurm, job)

    anyio.run(record)
    cluster.exec("scancel", str(job))
    return job, recorder.found


def looked_at(found: object) -> None:
    """Read every property of what was made of an answer, and of what is in it."""
    if isinstance(found, msgspec.Struct):
        for name, _ in inspect.getmembers(type(found), lambda one: isinstance(one, property)):
            getattr(found, name)
        for name in found.__struct_fields__:
            looked_at(getattr(found, name))
    elif isinstance(found, tuple | list):
        for one in cast("Iterable[object]", found):
            looked_at(one)


@few_and_many
def test_a_changed_answer_is_read_or_refused_in_few_words(
    recorded: tuple[int, dict[str, bytes]], examples: int
) -> None:
    job, answers = recorded
    kept = {path: body for path, body in answers.items() if path.startswith("/openapi")}
    documents: list[Any] = [msgspec.json.decode(body) for path, body in answers.items() if path not in kept]

    async def asked(read: str, body: bytes, status: int) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            is_ours = request.url.path not in kept
            return httpx.Response(
                status if is_ours else 200, content=body if is_ours else kept[request.url.path]
            )

        async with SlurmClient("http://slurm", Token(), transport=httpx.MockTransport(answer)) as slurm:
            refused = "-"
            try:
                looked_at(await READS[read](slurm, job))
            except SunkError as error:
                refused = str(error)
            assert 0 < len(refused) < LINE

    @fuzzed(examples)
    @given(st.sampled_from([*READS]), changed(documents), st.sampled_from([200, 200, 200, 400, 500]))
    def is_read_or_refused(read: str, body: bytes, status: int) -> None:
        anyio.run(asked, read, body, status)

    is_read_or_refused()


class Token:
    """A token that slurmrestd takes."""

    def current(self) -> str:
        return "token"

    def renew(self) -> None:
        return
