"""Tells every fact of every Slurm cluster as it happens. Needs nats-py.

python subscriber.py nats://sunk-nats-teams.sunk:4222 subscriber-billing PASSWORD_FILE
"""

import asyncio
import json
import sys
from pathlib import Path

import nats


async def main(url: str, user: str, password: str) -> None:
    """Print when, what, and to what it happened."""
    bus = await nats.connect(url, user=user, password=password, inbox_prefix=f"_INBOX.{user}".encode())
    facts = await bus.subscribe("sunk.ev.>")
    async for message in facts.messages:
        fact = json.loads(message.data)
        print(fact["time"], fact["type"], fact["subject"], json.dumps(fact["data"]), flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text().strip()))
