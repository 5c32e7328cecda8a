"""Dead letters: what could not be handled, with the reason, for a person to look at."""

import logging
from datetime import UTC, datetime
from typing import Final

from sunk_events import subjects
from sunk_events.base import source
from sunk_events.codec import encode
from sunk_events.dead import DeadLetter, DeadMessage
from sunk_runtime.errors import SunkError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.metrics import DEAD_LETTERS

log = logging.getLogger(__name__)

_KEPT: Final = 64 * 1024


async def publish_dead_letter(bus: Bus, cluster: str, message: Message, reason: str, *, msg_id: str) -> bool:
    """Keep *message* with the *reason* and return whether that is done; failing to is only logged."""
    log.error("message dead-lettered", extra={"subject": message.subject, "reason": reason})
    DEAD_LETTERS.labels("undecodable").inc()
    letter = DeadLetter(
        id=msg_id,
        source=source(cluster, bus.name),
        subject=message.subject,
        time=datetime.now(UTC),
        data=DeadMessage(
            on=message.subject,
            reason=reason[:4096],
            payload=message.data[:_KEPT],
            is_cut=len(message.data) > _KEPT,
        ),
    )
    try:
        await bus.publish(subjects.fact(cluster, letter), encode(letter), msg_id=letter.id)
    except SunkError as error:
        log.warning("dead letter not stored", extra={"subject": message.subject, "error": str(error)})
        return False
    return True
