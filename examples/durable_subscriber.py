"""Tells every fact of a Slurm cluster, those of while it was away too, each at least once. Needs nats-py.

python durable_subscriber.py nats://sunk-nats-teams.sunk:4222 subscriber-billing PASSWORD_FILE prod
"""

import asyncio
import json
import sys
from pathlib import Path

import nats


async def main(url: str, user: str, password: str, cluster: str) -> None:
    """Print when, what, and to what it happened. A fact that comes again has the same id."""
    bus = await nats.connect(url, user=user, password=password, inbox_prefix=f"_INBOX.{user}".encode())
    facts = await bus.jetstream().pull_subscribe(f"sunk.ev.{cluster}.>", user, f"SUNK_EV_{cluster}")
    while True:
        try:
            (message,) = await facts.fetch(timeout=30)
        except TimeoutError:
            continue  # Nothing happened.
        fact = json.loads(message.data)
        print(fact["time"], fact["id"], fact["type"], fact["subject"], flush=True)
        await message.ack()  # Only now: until then it comes again.


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text().strip(), sys.argv[4]))
