"""Calls of slurmrestd by `SlurmClient`, each figure beside bare httpx on the same server in the same run.

Results: ``slurm.look``, one node after the other; ``slurm.looks``, eight at once; ``slurm.list``, all nodes.
Keys that begin with ``bare`` are httpx' own `AsyncClient`, which decodes nothing. ``cpu_us`` is this process'
processor time a call.
"""

import argparse
from collections.abc import Awaitable, Callable

import anyio
import httpx
from figures import Stopwatch, emit, require

from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm
from sunk_slurm.client import SlurmClient
from sunk_slurm.reads import NodeList
from sunk_slurm.tokens import KeyTokens

AT_ONCE = 8
NODE = "node01"


class Sizes(argparse.Namespace):
    """How much is measured."""

    calls: int
    lists: int
    nodes: int
    slurm: str


async def each(count: int, call: Callable[[], Awaitable[None]]) -> None:
    """Make *count* calls one after the other."""
    for _ in range(count):
        await call()


async def run(sizes: Sizes) -> None:
    """Measure all."""
    release = next(release for release in RELEASES if release.version == sizes.slurm)
    with running_slurm(release, records=sizes.nodes) as slurm:
        tokens = KeyTokens(slurm.jwt_key)
        base, who = f"{slurm.url}/slurm/{release.api}", {"Authorization": f"Bearer {tokens.current()}"}
        async with (
            httpx.AsyncClient(headers=who, trust_env=False, timeout=60) as bare,
            SlurmClient(slurm.url, tokens) as client,
        ):

            async def look() -> None:
                require(holds=await client.node(NODE) is not None, claim="the node is known")

            async def bare_look() -> None:
                answer = await bare.get(f"{base}/node/{NODE}?flags=ALL&flags=DETAIL")
                require(holds=answer.is_success, claim="the node is known")

            async def list_all() -> None:
                found = await client.nodes()
                known = len(found.nodes) if isinstance(found, NodeList) else 0
                require(holds=known >= sizes.nodes, claim="every node is told")

            async def bare_list() -> None:
                answer = await bare.get(f"{base}/nodes/?flags=ALL&flags=DETAIL")
                require(holds=answer.is_success, claim="nodes are told")

            for name, count, at_once, ours, theirs in (
                ("slurm.look", sizes.calls, 1, look, bare_look),
                ("slurm.looks", sizes.calls, AT_ONCE, look, bare_look),
                ("slurm.list", sizes.lists, 1, list_all, bare_list),
            ):
                figures = [
                    await measured(count, at_once, call, prefix)
                    for call, prefix in ((ours, ""), (theirs, "bare_"))
                ]
                emit(name, count, *figures)


async def measured(
    count: int, at_once: int, call: Callable[[], Awaitable[None]], prefix: str
) -> dict[str, float]:
    """Return what *count* calls took, so many at once."""
    await call()
    watch = Stopwatch()
    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(each, count // at_once, call)
    return watch.figures(count, prefix)


def main() -> None:
    """Read the sizes and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--lists", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--slurm", default=RELEASES[-1].version)
    anyio.run(run, parser.parse_args(namespace=Sizes()), backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()
