"""What a server has on its disk: its streams and their consumers. It outlives the server's process."""

import pickle
from typing import Final

from sunk_simulation.bus.consumer import Consumer, Wire
from sunk_simulation.bus.stream import Stream


class _Nowhere:
    """Where a consumer sends that nobody serves."""

    def send(self, subject: str, reply: str, raw: bytes, data: bytes, *, as_subject: str = "") -> None:
        """Send nothing."""

    def has_interest(self, subject: str) -> bool:
        """Nobody listens."""
        return False


NOWHERE: Final[Wire] = _Nowhere()


class Store:
    """All of it. A copy is what a snapshot of the disk would be."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.consumers: dict[str, dict[str, Consumer]] = {}

    def copy(self) -> "Store":
        """Return what it is now."""
        other = Store()
        for name, stream in self.streams.items():
            twin = other.streams[name] = stream.copy()
            twins = other.consumers[name] = {}
            for one, consumer in self.consumers[name].items():
                if not consumer.config.get("mem_storage"):
                    twins[one] = consumer.copy(twin, NOWHERE)
                    twin.readers[one] = twins[one]
        return other

    def put_back(self, older: "Store") -> None:
        """Be what *older* was."""
        fresh = older.copy()
        self.streams, self.consumers = fresh.streams, fresh.consumers

    def forget(self) -> None:
        """Be new and empty, as when a disk was replaced."""
        self.streams, self.consumers = {}, {}

    @property
    def size(self) -> int:
        """What it takes, in bytes."""
        return sum(stream.size for stream in self.streams.values())

    def dump(self) -> bytes:
        """Return it as bytes."""
        return pickle.dumps(self.copy())

    @staticmethod
    def load(data: bytes) -> "Store":
        """Return what `dump` returned."""
        return pickle.loads(data)  # noqa: S301 - our own
