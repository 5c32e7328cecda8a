"""Counts how often each node was drained, each drain exactly once, also across restarts. Needs sunk-events.

python durable_subscriber.py nats://sunk-nats-teams.sunk:4222 prod subscriber-billing PASSWORD_FILE drains.db

If NATS uses TLS, add a file with its CA as the last argument.

A fact comes at least once. The program stores the fact's id and the new count in one transaction. So a fact
that comes again, also after a restart, changes nothing.
"""

import asyncio
import sqlite3
import sys

from sunk_events.base import Event
from sunk_events.nodes import NodeDrained
from sunk_events.subscriber import Subscriber

url, cluster, user, password_file, file, *ca = sys.argv[1:]
ca_file = ca[0] if ca else None  # Needed if NATS uses TLS.
drains = sqlite3.connect(file)
drains.execute("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY) WITHOUT ROWID")
drains.execute("CREATE TABLE IF NOT EXISTS drains (node TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID")


async def count(fact: Event) -> None:
    """Count the drain unless it was counted."""
    with drains:  # Both or neither: after an error nothing is stored, and the fact comes again.
        if drains.execute("INSERT OR IGNORE INTO done VALUES (?)", (fact.id,)).rowcount:
            one_more = "INSERT INTO drains VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1"
            drains.execute(one_more, (fact.subject,))
            print(fact.time, fact.subject, flush=True)


subscriber = Subscriber(
    url, cluster, user=user, password_file=password_file, ca_file=ca_file, kinds=[NodeDrained]
)
asyncio.run(subscriber.run(count))
