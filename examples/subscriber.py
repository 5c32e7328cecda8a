"""Prints every fact of one Slurm cluster, also facts published while it was not running. Needs sunk-events.

python subscriber.py nats://sunk-nats-teams.sunk:4222 prod subscriber-billing PASSWORD_FILE [CA_FILE]
"""

import asyncio
import sys

from sunk_events.base import Event
from sunk_events.subscriber import Subscriber

url, cluster, user, password_file, *ca = sys.argv[1:]
ca_file = ca[0] if ca else None  # Needed if NATS uses TLS.


async def show(fact: Event) -> None:
    """Print time, id, type and subject of the fact."""
    print(fact.time, fact.id, fact.type, fact.subject, flush=True)


asyncio.run(Subscriber(url, cluster, user=user, password_file=password_file, ca_file=ca_file).run(show))
