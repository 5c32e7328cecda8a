"""A question that a NATS without a leader drops is asked again, and has its whole time-out all the same."""

import anyio
import pytest

from sunk_runtime import repeated
from sunk_runtime.errors import BusUnavailableError
from sunk_runtime.repeated import TIMES, first_answer

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "AGAIN_S", 0.01)


class Server:
    """Answers question number *number*, after all others were asked; it drops, or refuses, the others."""

    def __init__(self, number: int, error: Exception | None = None) -> None:
        self.number, self.error, self.asked = number, error, 0

    async def __call__(self) -> int:
        self.asked += 1
        mine = self.asked
        if mine == self.number:
            return mine
        if self.error is not None:
            raise self.error
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize("number", [1, 2, TIMES])
async def test_the_question_that_is_answered_counts(number: int) -> None:
    server = Server(number)

    assert await first_answer(server) == number
    assert server.asked == number


async def test_one_that_waits_for_long_has_its_answer_though_others_were_asked() -> None:
    asked = 0
    all_were_asked = anyio.Event()

    async def slow() -> int:
        nonlocal asked
        asked += 1
        mine = asked
        if mine == TIMES:
            all_were_asked.set()
        await (all_were_asked.wait() if mine == 1 else anyio.sleep_forever())
        return mine

    assert await first_answer(slow) == 1


async def test_a_failure_is_not_waited_for_longer() -> None:
    server = Server(0, BusUnavailableError("the connection broke"))

    with pytest.raises(BusUnavailableError, match="the connection broke"):
        await first_answer(server)
    assert server.asked == 1
