"""Whether our NATS user may do what our service does, asked once at start.

A right that is missing would otherwise show hours later, as a call that nobody answers.

Source: NATS, "Subject-Based Messaging" (wildcards) and ``$SYS.REQ.USER.INFO``, which any user may be let ask.
"""

import logging
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from sunk_runtime.errors import PermanentError, TransientError
from sunk_runtime.jetstream import Bus

log = logging.getLogger(__name__)

USER_INFO: Final = "$SYS.REQ.USER.INFO"
ANSWER_S: Final = 5.0


class Needs(Protocol):
    """What a service publishes and subscribes to."""

    @property
    def publish(self) -> tuple[str, ...]:
        """Subjects, with wildcards."""
        ...

    @property
    def subscribe(self) -> tuple[str, ...]:
        """Subjects, with wildcards."""
        ...


class _Rule(msgspec.Struct, frozen=True):
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


class _Permissions(msgspec.Struct, frozen=True):
    publish: _Rule = _Rule()
    subscribe: _Rule = _Rule()


class User(msgspec.Struct, frozen=True):
    """A user as the server knows it."""

    user: str = ""
    permissions: _Permissions | None = None


class UserInfo(msgspec.Struct, frozen=True):
    """The server's answer to `USER_INFO`."""

    data: User


async def require_rights(bus: Bus, needs: Needs) -> None:
    """Make sure that our user may do all of *needs*; a server that does not say is taken to allow it.

    Raises:
        PermanentError: it may not; names the user, each right that it lacks, and what to do.
    """
    try:
        answer = await bus.request(USER_INFO, b"", ANSWER_S)
        user = msgspec.json.decode(answer.data, type=UserInfo).data
    except (TransientError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("rights not known", extra={"error": str(error)})
        return
    if lacking := missing(user, needs):
        raise PermanentError(
            f"NATS user {user.user!r} may not {'; may not '.join(lacking)}. "
            "Give it these rights in the server's configuration, or use the user that the chart creates "
            "for this service"
        )


def missing(user: User, needs: Needs) -> list[str]:
    """Return, for people, each right of *needs* that *user* has not."""
    if user.permissions is None:
        return []
    rules = (("publish to", needs.publish, user.permissions.publish),)
    rules += (("subscribe to", needs.subscribe, user.permissions.subscribe),)
    return [f"{verb} {subject}" for verb, subjects, rule in rules for subject in _denied(subjects, rule)]


def covers(pattern: str, subject: str) -> bool:
    """Whether every subject that *subject* matches is one that *pattern* matches."""
    wanted = subject.split(".")
    for position, part in enumerate(allowed := pattern.split(".")):
        if part == ">":
            return len(wanted) > position
        if position >= len(wanted) or wanted[position] == ">" or part not in {"*", wanted[position]}:
            return False
    return len(allowed) == len(wanted)


def overlaps(one: str, other: str) -> bool:
    """Whether there is a subject that both match."""
    left, right = one.split("."), other.split(".")
    for mine, theirs in zip(left, right, strict=False):
        if ">" in {mine, theirs}:
            return True
        if "*" not in {mine, theirs} and mine != theirs:
            return False
    return len(left) == len(right)


def _denied(subjects: Iterable[str], rule: _Rule) -> list[str]:
    return [
        subject
        for subject in subjects
        if (rule.allow is not None and not any(covers(pattern, subject) for pattern in rule.allow))
        or any(overlaps(pattern, subject) for pattern in rule.deny or ())
    ]
