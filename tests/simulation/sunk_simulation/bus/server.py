"""The server itself: clients, what they subscribe to and publish, and who may what."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from sunk_simulation.bus import headers
from sunk_simulation.bus.interest import Interest
from sunk_simulation.bus.jetstream import ACK, API, JetStream, Told, rfc3339
from sunk_simulation.bus.settings import Settings, User
from sunk_simulation.bus.store import Store

USER_INFO: Final = "$SYS.REQ.USER.INFO"
PING_S: Final = 120.0
PINGS_MAX: Final = 2
STALL_S: Final = 10.0
"""How long a client may leave what it is sent unread before it is sent away."""
_VERSION: Final = "2.15.1"
_AUTH_S: Final = 2.0


class Subscription:
    """What one client wants."""

    __slots__ = ("client", "left", "queue", "sid", "subject")

    def __init__(self, client: "Client", subject: str, queue: str, sid: str) -> None:
        self.client = client
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.left: int | None = None


class Client(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._pings = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.number = server.next_number()
        self.subscriptions: dict[str, Subscription] = {}
        self.user: User | None = None
        self.name = ""
        self.is_in = False
        """Whether it may speak."""
        self._hears_of_nobody = False
        self._echoes = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.clients[self] = None
        self.write(b"INFO " + msgspec.json.encode(self._server.info(self.number)) + b"\r\n")
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PING_S, self._ping)
        if self._server.settings.users:
            loop.call_later(_AUTH_S, self._must_be_in)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what it wanted."""
        self._server.clients.pop(self, None)
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        for subscription in self.subscriptions.values():
            self._server.interest.remove(subscription.subject, subscription)
        self.subscriptions.clear()

    def pause_writing(self) -> None:
        """Send it away if it does not read for too long."""
        self._stalled = asyncio.get_running_loop().call_later(STALL_S, self.abort)

    def resume_writing(self) -> None:
        """Be content that it reads again."""
        if self._stalled is not None:
            self._stalled.cancel()

    def write(self, data: bytes) -> None:
        """Send it something."""
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """End it, now."""
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, words: str, *, ends: bool = False) -> None:
        """Say what is wrong; some things end the connection."""
        self.write(f"-ERR '{words}'\r\n".encode())
        if ends and self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Take what it says."""
        buffer = self._buffer + data if self._buffer else data
        position = 0
        while self._transport is not None and not self._transport.is_closing():
            end = buffer.find(b"\r\n", position)
            if end < 0:
                break
            line = buffer[position:end]
            verb = line[:4].upper()
            if verb in {b"PUB ", b"HPUB"}:
                after = self._publish(line, buffer, end + 2)
                if after is None:
                    break
                position = after
            else:
                position = end + 2
                self._take(line)
        self._buffer = buffer[position:]

    def _take(self, line: bytes) -> None:
        verb, _, rest = line.decode().partition(" ")
        match verb.upper():
            case "PING":
                self.write(b"PONG\r\n")
            case "PONG":
                self._pings = 0
            case "SUB":
                self._subscribe(rest.split())
            case "UNSUB":
                self._unsubscribe(rest.split())
            case "CONNECT":
                self._connect(rest)
            case _:
                self.refuse("Unknown Protocol Operation", ends=True)

    def _connect(self, text: str) -> None:
        said = msgspec.json.decode(text, type=dict[str, Any])
        self.name = str(said.get("name") or "")
        self._hears_of_nobody = bool(said.get("no_responders")) and bool(said.get("headers"))
        self._echoes = bool(said.get("echo", True))
        users = self._server.settings.users
        if users:
            name, password = said.get("user"), said.get("pass")
            self.user = next((one for one in users if one.name == name and one.password == password), None)
            if self.user is None:
                self.refuse("Authorization Violation", ends=True)
                return
        self.is_in = True
        self._server.told("is joined", by=self.name)

    def _must_be_in(self) -> None:
        if not self.is_in:
            self.refuse("Authentication Timeout", ends=True)

    def _subscribe(self, words: list[str]) -> None:
        subject, queue, sid = words[0], words[1] if len(words) > 2 else "", words[-1]
        if self.user is not None and not self.user.subscribe.allows_all_of(subject):
            self.refuse(f'Permissions Violation for Subscription to "{subject}"')
            return
        subscription = Subscription(self, subject, queue, sid)
        self.subscriptions[sid] = subscription
        self._server.interest.add(subject, subscription)

    def _unsubscribe(self, words: list[str]) -> None:
        subscription = self.subscriptions.get(words[0])
        if subscription is None:
            return
        if len(words) > 1:
            subscription.left = int(words[1])
        else:
            self.end(subscription)

    def end(self, subscription: Subscription) -> None:
        """Want it no more."""
        self.subscriptions.pop(subscription.sid, None)
        self._server.interest.remove(subscription.subject, subscription)

    def _publish(self, line: bytes, buffer: bytes, begins: int) -> int | None:
        """Take a message; return where the next thing begins, None: it is not all here yet."""
        words = line.decode().split()
        has_headers = words[0].upper() == "HPUB"
        size = int(words[-1])
        if size > self._server.settings.max_payload:
            self.refuse("Maximum Payload Violation", ends=True)
            return None
        ends = begins + size
        if len(buffer) < ends + 2:
            return None
        head = begins + int(words[-2]) if has_headers else begins
        reply = words[2] if len(words) > 3 + has_headers else ""
        subject = words[1]
        if self.user is not None and not self.user.publish.allows(subject):
            self.refuse(f'Permissions Violation for Publish to "{subject}"')
        else:
            is_heard = self._server.publish(subject, reply, buffer[begins:head], buffer[head:ends], self)
            if not is_heard and reply and self._hears_of_nobody:
                raw = headers.render({"Nats-Subject": subject}, "503")
                self._server.deliver(reply, "", raw, b"", as_subject=reply)
        return ends + 2

    def gets_its_own(self) -> bool:
        """Whether it hears what it says itself."""
        return self._echoes

    def _ping(self) -> None:
        if self._pings >= PINGS_MAX:
            self.refuse("Stale Connection", ends=True)
            return
        self._pings += 1
        self.write(b"PING\r\n")
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._ping)


class Server:
    """One nats-server: it serves a store for as long as its process lives."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int],
        name: str,
        random: Random,
        told: Told,
        servers: int = 1,
    ) -> None:
        self.settings: Final = settings
        self.interest: Final[Interest[Subscription]] = Interest()
        self.clients: Final[dict[Client, None]] = {}
        self.told: Final = told
        self.loses_answer: Callable[[str], bool] = lambda _subject: False
        """Whether the acknowledgement of what was published on a subject gets lost, after it took effect."""
        self._name = name
        self._now_ns: Final = now_ns
        self._random = random
        self._numbers = 0
        self.jetstream: Final = JetStream(
            store,
            self,
            loop=loop,
            now_ns=now_ns,
            random=random,
            told=told,
            max_store=settings.max_store,
            servers=servers,
        )

    def client(self) -> Client:
        """Return the protocol of a new connection."""
        return Client(self)

    def next_number(self) -> int:
        """Return a client's number."""
        self._numbers += 1
        return self._numbers

    def info(self, client: int) -> dict[str, Any]:
        """Return what a client is greeted with."""
        return {
            "server_id": self._name,
            "server_name": self._name,
            "version": _VERSION,
            "proto": 1,
            "headers": True,
            "jetstream": True,
            "max_payload": self.settings.max_payload,
            "auth_required": bool(self.settings.users),
            "client_id": client,
        }

    def publish(self, subject: str, reply: str, raw: bytes, data: bytes, client: Client | None) -> bool:
        """Hand a message to whoever wants it; return whether anybody does."""
        is_heard = self.deliver(subject, reply, raw, data, client=client)
        if subject.startswith("$JS."):
            return self._to_jetstream(subject, reply, data) or is_heard
        if subject == USER_INFO:
            self.deliver(reply, "", b"", self._user_info(client), as_subject=reply)
            return True
        stream = self.jetstream.captures(subject)
        if stream is None or stream.name in self.jetstream.leaderless:
            return is_heard
        ack = self.jetstream.publish(stream, subject, raw, data)
        if reply and not stream.config.get("no_ack") and not self.loses_answer(subject):
            self.deliver(reply, "", b"", ack, as_subject=reply)
        return True

    def deliver(
        self,
        subject: str,
        reply: str,
        raw: bytes,
        data: bytes,
        *,
        as_subject: str = "",
        client: Client | None = None,
    ) -> bool:
        """Send to whoever subscribed to *subject*; of a queue group one gets it."""
        found = self.interest.of(subject)
        if not found:
            return False
        groups: dict[str, list[Subscription]] = {}
        is_heard = False
        for subscription in found:
            if client is not None and subscription.client is client and not client.gets_its_own():
                continue
            if subscription.queue:
                groups.setdefault(subscription.queue, []).append(subscription)
                continue
            self._send(subscription, as_subject or subject, reply, raw, data)
            is_heard = True
        for members in groups.values():
            self._send(self._random.choice(members), as_subject or subject, reply, raw, data)
            is_heard = True
        return is_heard

    def send(self, subject: str, reply: str, raw: bytes, data: bytes, *, as_subject: str = "") -> None:
        """As `deliver`, for JetStream."""
        self.deliver(subject, reply, raw, data, as_subject=as_subject)

    def has_interest(self, subject: str) -> bool:
        """Whether somebody listens on *subject*."""
        return self.interest.has(subject)

    def retire(self) -> None:
        """Send everybody away, as in lame duck mode."""
        for client in list(self.clients):
            client.refuse("Server Shutdown", ends=True)

    def _send(self, subscription: Subscription, subject: str, reply: str, raw: bytes, data: bytes) -> None:
        words = f"{subject} {subscription.sid} {reply} " if reply else f"{subject} {subscription.sid} "
        sizes = f"HMSG {words}{len(raw)} {len(raw) + len(data)}" if raw else f"MSG {words}{len(data)}"
        subscription.client.write(b"".join((sizes.encode(), b"\r\n", raw, data, b"\r\n")))
        if subscription.left is not None:
            subscription.left -= 1
            if subscription.left <= 0:
                subscription.client.end(subscription)

    def _to_jetstream(self, subject: str, reply: str, data: bytes) -> bool:
        if subject.startswith(ACK):
            self.jetstream.acknowledge(subject, data)
            return True
        if not subject.startswith(API):
            return False
        answer = self.jetstream.call(subject, reply, data)
        if answer is None:
            return False
        if answer and reply and not self.loses_answer(subject):
            self.deliver(reply, "", b"", answer, as_subject=reply)
        return True

    def _user_info(self, client: Client | None) -> bytes:
        user = client.user if client is not None else None
        said: dict[str, Any] = {"user": user.name if user else "", "account": "$G", "account_name": "$G"}
        if user is not None and user.has_rules:
            said["permissions"] = {
                name: {
                    key: list(value) for key, value in (("allow", rule.allow), ("deny", rule.deny)) if value
                }
                for name, rule in (("publish", user.publish), ("subscribe", user.subscribe))
            }
        server = {"name": self._name, "ver": _VERSION, "time": rfc3339(self._now_ns())}
        return msgspec.json.encode({"server": server, "data": said})
