"""Who may do what on the NATS server of other teams, which mirrors our facts and states.

What must stay true: no user there writes to our server or makes anything on it, whatever it names as a reply
or delivery subject, and what users there make counts against the limits of that server's account alone. Such
a subject may pass as a question about a stream, which our server refuses: that costs it processor time.

That server holds one account, `ACCOUNT`. It connects to ours as a leaf node, as the user `LINK`. Its own
JetStream has the domain `DOMAIN`, so neither server sees the other's JetStream (ADR 0034).

Source: NATS documentation, "Leaf Nodes" and "JetStream on Leaf Nodes".
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from sunk_events import subjects
from sunk_events.catalog import STATES
from sunk_events.permissions import (
    API,
    DOMAIN_API,
    KEEPER,
    Permissions,
    User,
    consumed,
    mirrored,
    users_in_nats,
)

ACCOUNT: Final = "TEAMS"
DOMAIN: Final = "teams"
SUBSCRIBER: Final = "subscriber"
"""The user of other teams: all facts, as they come or by a durable consumer of its own name, and the state
buckets to read, key by key or by a consumer of that name."""


class Limits(msgspec.Struct, frozen=True):
    """What all teams together may have."""

    connections: int = 100
    consumers: int = 100
    """Of one stream, which is what JetStream counts."""


def team_users(clusters: Iterable[str], teams: Iterable[str] = ()) -> tuple[User, ...]:
    """Return the users of the server of other teams: the keeper, `SUBSCRIBER`, and one for each team."""
    names = tuple(clusters)
    readers = (SUBSCRIBER, *(f"{SUBSCRIBER}-{team}" for team in teams))
    return (*(User(reader, _subscriber(reader, names)) for reader in readers), User(KEEPER, _keeper(names)))


def listener() -> User:
    """Return the user of teams where they have no server: it hears facts and publishes nothing.

    A user who may publish to JetStream can have it publish on any subject.
    """
    return User(SUBSCRIBER, Permissions(publish=(), subscribe=(subjects.EVERYTHING,)))


def link_configuration(listen: str) -> str:
    """Return what our nats-server's configuration needs besides its users: where the link comes in."""
    mappings = {f"{DOMAIN_API}.>": f"{API}.>"}
    return f"leafnodes: {json.dumps({'listen': listen})}\nmappings: {json.dumps(mappings)}\n"


def team_configuration(
    wanted: Iterable[User], passwords: Mapping[str, str], link: str, limits: Limits | None = None
) -> str:
    """Return what the nats-server of other teams needs besides JetStream, whose domain must be `DOMAIN`.

    Args:
        wanted: The users.
        passwords: By user.
        link: Our server's address with user and password: ``nats-leaf://teams:PASSWORD@HOST:7422``.
        limits: What the teams may have; some by default.
    """
    limits = limits or Limits()
    account = {
        "jetstream": {"max_consumers": limits.consumers},
        "limits": {"max_connections": limits.connections},
        "users": users_in_nats(wanted, passwords),
    }
    remote = {"url": link, "account": ACCOUNT}
    return (
        f"accounts: {json.dumps({ACCOUNT: account}, indent=2)}\n"
        f"leafnodes: {json.dumps({'reconnect': '1s', 'remotes': [remote]})}\n"
    )


def _keeper(clusters: tuple[str, ...]) -> Permissions:
    """Return what making mirrors takes, and seeing whether they are still those of our streams."""
    calls: list[str] = []
    for stream in (stream for cluster in clusters for stream in mirrored(cluster)):
        calls += [f"{API}.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE", "DELETE")]
        calls += [
            f"{api}.STREAM.{verb}.{stream}" for api in (API, DOMAIN_API) for verb in ("INFO", "MSG.GET")
        ]
    return Permissions(publish=tuple(calls), subscribe=(f"{subjects.inbox(KEEPER)}.>",))


def _subscriber(reader: str, clusters: tuple[str, ...]) -> Permissions:
    """Return what any client's ``kv get`` takes, and one consumer of each stream, called as the user.

    NATS can bound how many consumers one user makes by their names alone.
    """
    calls: list[str] = []
    for cluster in clusters:
        stream = subjects.fact_stream(cluster)
        calls += [
            f"{API}.STREAM.INFO.{stream}",
            f"{API}.CONSUMER.CREATE.{stream}.{reader}",
            f"{API}.CONSUMER.CREATE.{stream}.{reader}.>",
            f"{API}.CONSUMER.INFO.{stream}.{reader}",
            *consumed(stream, reader),
        ]
        for kind in STATES:
            stream = subjects.bucket_stream(subjects.bucket(cluster, kind))
            calls += [
                f"{API}.STREAM.INFO.{stream}",
                f"{API}.STREAM.MSG.GET.{stream}",
                f"{API}.CONSUMER.CREATE.{stream}.{reader}",
                f"{API}.CONSUMER.CREATE.{stream}.{reader}.>",
                f"{API}.CONSUMER.INFO.{stream}.{reader}",
                f"{API}.CONSUMER.MSG.NEXT.{stream}.{reader}",
                f"{API}.CONSUMER.DELETE.{stream}.{reader}",  # To read the whole bucket anew.
                f"$JS.FC.{stream}.{reader}.>",
            ]
    return Permissions(publish=tuple(calls), subscribe=(subjects.EVERYTHING, f"{subjects.inbox(reader)}.>"))
