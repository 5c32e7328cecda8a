from typing import Any

import pytest

from sunk_events.base import Event
from sunk_events.dead import DeadLetter
from sunk_events.subscriber import Subscriber

GIVEN: dict[str, Any] = {"url": "nats://127.0.0.1:1", "cluster": "c1", "user": "subscriber-billing"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        pytest.param(
            {"url": "sunk-nats-teams:4222"}, "url .*: must be an address of NATS, such as nats://", id="url"
        ),
        pytest.param({"cluster": "*"}, r"cluster '\*'", id="cluster"),
        pytest.param({"user": ""}, "user must not be empty", id="user"),
        pytest.param({"consumer": "a.b"}, r"consumer 'a\.b': NATS accepts", id="consumer"),
        pytest.param({"kinds": [DeadLetter]}, "kinds: DeadLetter are not in a stream", id="kinds"),
        pytest.param({"concurrency": 0}, "concurrency 0: Expected `int` >= 1", id="no concurrency"),
        pytest.param({"concurrency": 9, "max_ack_pending": 8}, "more than max_ack_pending", id="two limits"),
        pytest.param({"max_ack_pending": 0}, "max_ack_pending 0", id="nothing pending"),
        pytest.param({"remembered": 10}, "less than max_ack_pending", id="remembered"),
    ],
)
def test_a_setting_that_cannot_be_is_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Subscriber(**GIVEN | wrong)


@pytest.mark.anyio
async def test_a_handler_that_is_no_async_function_is_refused_before_any_fact() -> None:
    def handle(_: Event) -> None: ...

    with pytest.raises(TypeError, match="not an async function"):
        await Subscriber(**GIVEN).run(handle)  # pyright: ignore[reportArgumentType] - that is tried
