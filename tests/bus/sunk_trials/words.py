"""What a trial's processes say to one another: settings, orders, reports and the journal.

A journal line is written in one system call before its process goes on, so it outlives ``kill -9``.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

Step = Literal[
    "fact.begin", "fact.sent", "fact.acked", "state.sent", "state.acked", "ack.begin", "ack.sent", "any"
]
"""Where a process stands between deciding and having settled: before, during and after each message."""
WRITER_STEPS: tuple[Step, ...] = ("fact.begin", "fact.sent", "fact.acked", "state.sent", "state.acked")
CONSUMER_STEPS: tuple[Step, ...] = ("ack.begin", "ack.sent")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of a trial does."""

    role: Literal["writer", "consumer", "contender"]
    name: str
    url: str
    journal: str
    """The file that it appends to."""
    replicas: int = 1
    keys: int = 20
    writes_per_s: float = 300.0
    asks_per_s: float = 0.0
    is_answering: bool = False
    ack_wait_s: float = 1.0
    lease_ttl_s: int = 2


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the trial tells a process, one JSON object a line on standard input."""

    say: Literal["kill", "rest", "report"]
    step: Step = "any"
    after: int = 0
    """How often the step is passed before."""
    pids: tuple[int, ...] = ()
    """Who is killed; empty: the process itself."""
    delay_s: float = 0.0
    """How long after the step, while the process goes on; only where the step is that something was sent."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a process answers to an order, one JSON object a line on standard output."""

    is_resting: bool = False
    """Nothing is being written, and nothing will be."""
    is_complete: bool = False
    view: Mapping[str, tuple[int, int]] = {}
    """Number and revision by key."""
    rss_kib: int = 0
    descriptors: int = 0
    tasks: int = 0
    writes: int = 0
    seen: int = 0
    answers: int = 0
    errors: int = 0


class Line(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One line of a journal."""

    what: Literal["fact", "state", "seen"]
    """A fact was acknowledged, a state was acknowledged, a fact was handled."""
    key: str
    number: int
    id: str = ""
    revision: int = 0
