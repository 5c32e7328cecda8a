"""How much of a plan one turn carries out."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_nodeset_controller.nodeset_controller.attempts import REFUSED_MAX, in_growing_batches
from sunk_runtime.errors import ConflictError, SunkError

pytestmark = pytest.mark.anyio

Do = Callable[[object], Awaitable[None]]


def does(met: list[object], *refused: object, pause_s: float = 0.0) -> Do:
    """Do what comes, and note it in *met*; what is *refused*, or of a kind that is, is refused."""

    async def do(one: object) -> None:
        await anyio.sleep(pause_s)
        met.append(one)
        if one in refused or type(one) in refused:
            raise KubeRejectedError(f"not {one}", status=403)

    return do


async def test_all_is_done_where_there_is_time() -> None:
    met: list[object] = []
    tried = await in_growing_batches(range(40), does(met))

    assert sorted(tried.done) == list(range(40))
    assert tried.refused == {}


async def test_a_turn_ends_in_time_and_what_it_has_not_begun_is_the_end() -> None:
    met: list[object] = []
    tried = await in_growing_batches(range(10_000), does(met, pause_s=0.05), within_s=0.3)

    assert 0 < len(tried.done) < 10_000
    assert sorted(tried.done) == list(range(len(tried.done)))


async def test_what_is_refused_keeps_nothing_else_from_being_done() -> None:
    met: list[object] = []
    tried = await in_growing_batches(range(40), does(met, 0, 17))

    assert sorted(tried.done) == [one for one in range(40) if one not in {0, 17}]
    assert tried.refused == {0: "not 0", 17: "not 17"}


async def test_a_kind_that_is_refused_again_and_again_is_left_alone_and_the_others_are_done() -> None:
    met: list[object] = []
    tried = await in_growing_batches((*range(1000), *"abc"), does(met, int))

    assert met == [*range(REFUSED_MAX), *"abc"]
    assert tried.done == ("a", "b", "c")
    assert len(tried.refused) == REFUSED_MAX


@pytest.mark.parametrize(
    "error", [KubeUnavailableError("away"), ConflictError("stale")], ids=["away", "stale"]
)
async def test_an_api_server_that_is_away_or_a_stale_view_ends_the_turn(error: SunkError) -> None:
    met: list[object] = []

    async def do(one: object) -> None:
        met.append(one)
        raise error

    with pytest.raises(type(error)):
        await in_growing_batches(range(1000), do)

    assert met == [0]
