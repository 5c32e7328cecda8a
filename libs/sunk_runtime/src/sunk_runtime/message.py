"""A message as NATS brought it."""

from dataclasses import dataclass, field

from nats.aio.msg import Msg


@dataclass(eq=False)
class Message(Msg):
    """nats-py's own, of which `metadata` says where a delivery stands; its headers are never None."""

    headers: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.headers = self.headers or {}  # pyright: ignore[reportIncompatibleVariableOverride] - None is for none
