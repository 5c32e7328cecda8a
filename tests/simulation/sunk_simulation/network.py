"""A network in memory: named hosts, streams between them as TCP has them, and what goes wrong there.

What must stay true: what is sent on a stream arrives in order, whole and once, or the stream breaks; a cut
loses nothing that is on its way, as TCP repeats it, but lets it wait; only who is told of an end, or sends to
one that is gone, hears of it.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, Literal, TypeVar

from sunk_simulation.loop import PROCESS, Process, SimLoop

P = TypeVar("P", bound=asyncio.BaseProtocol)

CONNECT_S: Final = 127.0
"""How long a connect waits for a host that does not answer: Linux' six repeated SYNs."""
GIVE_UP_S: Final = 924.6
"""How long what is sent is repeated before the stream is given up: Linux' ``tcp_retries2``, 15."""
BUFFER: Final = 1 << 20
"""What a stream holds for a reader that does not read before its writer has to wait."""
READ: Final = 256 * 1024
"""What is read at once, at most, as asyncio does."""
_HERE: Final = frozenset({"", "127.0.0.1", "::1", "localhost"})
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - in memory

_SILENT, _READABLE = os.pipe(), os.pipe()
"""What stands for a socket's file: who polls it hears that there is nothing to read, or that there is."""
os.close(_READABLE[1])

_Kind = Literal["data", "end", "reset"]


class Link:
    """One direction between two hosts."""

    def __init__(self, network: "Network", source: str, target: str) -> None:
        self.name: Final = f"{source}>{target}"
        self.target: Final = target
        self.latency_s = (0.0001, 0.001)
        """What a packet takes, at least and at most."""
        self._network = network
        self._is_cut = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._pipes: dict[_Pipe, None] = {}

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through."""
        return self._is_cut

    def cut(self) -> None:
        """Let nothing through; what is sent waits, as it is repeated."""
        self._is_cut = True

    def heal(self) -> None:
        """Let everything through again, what waits first."""
        self._is_cut = False
        self.go_on()
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def go_on(self) -> None:
        """Have what waits arrive, if it may."""
        for pipe in list(self._pipes):
            pipe.go_on()

    def hold(self, seconds: float) -> None:
        """Be cut for so long."""
        self.cut()
        self._network.later(seconds, self.heal)

    async def healed(self, within_s: float) -> None:
        """Return when it is not cut; raise `TimeoutError` when that takes too long."""
        while self._is_cut:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[future] = None
            async with asyncio.timeout(within_s):
                await future

    def takes_s(self, random: Random) -> float:
        """Return what the next packet takes."""
        least, most = self.latency_s
        return least + (most - least) * random.random()

    def carry(self, pipe: "_Pipe", *, more: bool) -> None:
        """Remember that *pipe* has something on its way, or no more."""
        if more:
            self._pipes[pipe] = None
        else:
            self._pipes.pop(pipe, None)


class _Socket:
    """What is asked of the socket below a stream."""

    family: Final = socket.AF_INET
    type: Final = socket.SOCK_STREAM
    proto: Final = socket.IPPROTO_TCP

    def __init__(
        self,
        here: tuple[str, int],
        there: tuple[str, int] | None = None,
        is_readable: Callable[[], bool] = lambda: False,
    ) -> None:
        self._here, self._there, self._is_readable = here, there, is_readable

    def getsockname(self) -> tuple[str, int]:
        return self._here

    def getpeername(self) -> tuple[str, int]:
        if self._there is None:
            raise OSError("not connected")
        return self._there

    def setsockopt(self, *_: object) -> None: ...

    def getsockopt(self, *_: object) -> int:
        return 0

    def fileno(self) -> int:
        return (_READABLE if self._is_readable() else _SILENT)[0]

    def setblocking(self, _: object) -> None: ...

    def close(self) -> None: ...


class _Pipe:
    """One direction of a stream: what is on its way, or waits to be read."""

    def __init__(self, network: "Network", link: Link, writer: "Stream", reader: "Stream") -> None:
        self._network = network
        self._link = link
        self._writer, self._reader = writer, reader
        self._way: deque[tuple[int, _Kind, list[bytes]]] = deque()
        self._sent_ns = -1
        self._is_due = False
        self._doubted: object = None
        """What was to arrive when the link was cut; given up if it still is much later."""
        self.size = 0
        """How many bytes are in it."""

    def send(self, kind: _Kind, data: bytes = b"") -> None:
        loop = self._network.loop
        self.size += len(data)
        if kind == "data" and self._way and self._sent_ns == loop.now_ns and self._way[-1][1] == "data":
            self._way[-1][2].append(data)
            return
        arrives = loop.now_ns + round(self._link.takes_s(self._network.random) * 1e9)
        if self._way:
            arrives = max(arrives, self._way[-1][0])
        self._way.append((arrives, kind, [data]))
        self._sent_ns = loop.now_ns
        self.go_on()

    def go_on(self) -> None:
        """Have the next arrive when it is due."""
        if not self._way:
            self._link.carry(self, more=False)
            return
        self._link.carry(self, more=True)
        if self._is_blocked():
            if self._doubted is not self._way[0]:
                self._doubted = self._way[0]
                self._network.later(GIVE_UP_S, self._give_up, self._way[0])
        elif not self._is_due:
            self._is_due = True
            loop = self._network.loop
            in_s = max(0, self._way[0][0] - loop.now_ns) / 1e9
            process = self._reader.process
            loop.at(process if process.is_alive else loop.outside, in_s, self._arrive)

    def has_arrived(self) -> bool:
        """Whether something is there for its reader."""
        return bool(self._way) and self._way[0][0] <= self._network.loop.now_ns and not self._is_blocked()

    def _is_blocked(self) -> bool:
        return self._link.is_cut or self._network.is_down(self._link.target)

    def _arrive(self) -> None:
        self._is_due = False
        now = self._network.loop.now_ns
        while self._way and self._way[0][0] <= now and not self._is_blocked():
            if not self._reader.may_take(self._way[0][1]):
                return  # Its reader calls `go_on`.
            arrived, kind, pieces = self._way.popleft()
            data = b"".join(pieces)
            if len(data) > READ:
                self._way.appendleft((arrived, kind, [data[READ:]]))
                data = data[:READ]
            self.size -= len(data)
            self._reader.take(kind, data)
            self._writer.may_write_again()
        self.go_on()

    def _give_up(self, oldest: object) -> None:
        if self._way and self._way[0] is oldest:
            self._way.clear()
            self._writer.break_off(TimeoutError(110, "Connection timed out"))


class Stream(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: "Network",
        process: Process,
        context: Context,
        addresses: tuple[tuple[str, int], tuple[str, int]],
    ) -> None:
        here, there = addresses
        sock = _Socket(here, there, self._is_readable)
        super().__init__({"socket": sock, "sockname": here, "peername": there})
        self.process: Final = process
        self.number = network.next_number()
        self._network = network
        self._context = context
        self._protocol: asyncio.BaseProtocol | None = None
        self._out: _Pipe | None = None
        self._in: _Pipe | None = None
        self._is_reading = True
        self._is_ended = False
        """We said that we send no more."""
        self._is_closing = False
        self._is_gone = False
        """Nobody listens to it any more."""
        self._is_held_up = False

    def join(self, out: _Pipe, in_: _Pipe) -> None:
        """Take the two directions."""
        self._out, self._in = out, in_

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand it to *protocol*."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._in is not None:
            self._in.go_on()

    def get_protocol(self) -> asyncio.BaseProtocol:
        """As asyncio's."""
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """As asyncio's."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """As asyncio's."""
        return self._is_closing

    def is_reading(self) -> bool:
        """As asyncio's."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """As asyncio's."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """As asyncio's."""
        if not self._is_reading:
            self._is_reading = True
            if self._in is not None:
                self._in.go_on()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As asyncio's."""
        if self._is_closing or self._is_ended or self._out is None or not data:
            return
        self._out.send("data", bytes(data))
        if self._out.size > BUFFER and not self._is_held_up:
            self._is_held_up = True
            if isinstance(self._protocol, asyncio.Protocol):
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """As asyncio's."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """As asyncio's."""
        if not self._is_ended and not self._is_closing and self._out is not None:
            self._is_ended = True
            self._out.send("end")

    def can_write_eof(self) -> bool:
        """As asyncio's."""
        return True

    def get_write_buffer_size(self) -> int:
        """As asyncio's."""
        return self._out.size if self._out is not None else 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """As asyncio's."""
        return BUFFER // 4, BUFFER

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep them as they are."""

    def close(self) -> None:
        """As asyncio's: what was written still arrives."""
        if self._is_closing:
            return
        if self._out is not None and not self._is_ended:
            self._out.send("end")
        self._leave(None)

    def abort(self) -> None:
        """As asyncio's: the other end hears of a reset."""
        if self._is_closing:
            return
        if self._out is not None:
            self._out.send("reset")
        self._leave(None)

    def break_off(self, error: OSError) -> None:
        """Let it end with *error*, and tell the other end nothing."""
        if not self._is_closing:
            self._leave(error)

    def vanish(self, *, silently: bool) -> None:
        """Let go of it, as its process is gone; the kernel tells the other end, unless it is gone too."""
        if self._is_gone:
            return
        self._is_closing = self._is_gone = True
        self._network.closed(self)
        if self._out is not None and not silently:
            self._out.send("reset")

    def may_take(self, kind: _Kind) -> bool:
        """Whether what comes may be handed on."""
        return self._is_closing or (self._protocol is not None and (self._is_reading or kind == "reset"))

    def take(self, kind: _Kind, data: bytes) -> None:
        """Hand on what came; who is gone answers with a reset, but nothing from a host that is down."""
        if self._is_closing:
            if kind == "data" and self._out is not None and not self._network.is_down(self.process.host):
                self._out.send("reset")
            return
        protocol = self._protocol
        if not isinstance(protocol, asyncio.Protocol):
            return
        if kind == "data":
            self._context.copy().run(protocol.data_received, data)
        elif kind == "reset":
            self._leave(ConnectionResetError(104, "Connection reset by peer"))
        elif not self._context.copy().run(protocol.eof_received):
            self.close()

    def may_write_again(self) -> None:
        """Let the protocol write again, if it had to wait and there is room."""
        if self._is_held_up and self._out is not None and self._out.size < BUFFER // 4:
            self._is_held_up = False
            if isinstance(self._protocol, asyncio.Protocol) and not self._is_closing:
                self._network.loop.soon(self.process, self._protocol.resume_writing)

    def _is_readable(self) -> bool:
        """Whether who read its socket would get something now, be it its end."""
        return self._is_closing or (self._in is not None and self._in.has_arrived())

    def _leave(self, error: OSError | None) -> None:
        self._is_closing = True
        self._network.loop.soon(self.process, self._lose, error)

    def _lose(self, error: OSError | None) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        self._network.closed(self)
        if self._protocol is not None:
            self._context.copy().run(self._protocol.connection_lost, error)
        if self._in is not None:
            self._in.go_on()


class Listener(asyncio.AbstractServer):
    """What a process listens on."""

    def __init__(
        self,
        network: "Network",
        process: Process,
        address: tuple[str, int],
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self.process: Final = process
        self.port: Final = address[1]
        self.factory: Final = factory
        self.context: Final = copy_context()
        self._network = network
        self._sockets = (_Socket(address),)
        self._closed: asyncio.Future[None] | None = None

    def accept(self, stream: Stream) -> None:
        """Hand *stream* to a protocol of its own."""
        self.context.copy().run(lambda: stream.begin(self.factory()))

    @property
    def sockets(self) -> tuple[_Socket, ...]:
        """As asyncio's."""
        return self._sockets

    def close(self) -> None:
        """As asyncio's."""
        self._network.unlisten(self)
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """As asyncio's."""
        return self._network.loop

    def is_serving(self) -> bool:
        """As asyncio's."""
        return self._network.listens(self)

    async def start_serving(self) -> None:
        """Do nothing: it does."""

    async def serve_forever(self) -> None:
        """As asyncio's."""
        self._closed = asyncio.get_running_loop().create_future()
        await self._closed

    async def wait_closed(self) -> None:
        """As asyncio's."""


class Network:
    """Hosts by their names, and the links between them."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop: Final = loop
        self.random: Final = random
        self.on_event: Callable[[str, str], None] = lambda _what, _who: None
        """Told of every connection that is opened, refused or closed."""
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._addresses: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self._down: set[str] = set()
        self._streams: dict[Process, dict[Stream, None]] = {}
        self._ports = 40000
        self._numbers = 0

    def link(self, source: str, target: str) -> Link:
        """Return the direction from one host to another, for faults."""
        key = (source, target)
        if key not in self._links:
            self._links[key] = Link(self, source, target)
            if source == target:
                self._links[key].latency_s = (0.00002, 0.0001)
        return self._links[key]

    def between(self, one: str, other: str) -> tuple[Link, Link]:
        """Return both directions."""
        return self.link(one, other), self.link(other, one)

    def name(self, name: str, *hosts: str) -> None:
        """Let *name* mean *hosts*, as a Service does; none: the name is not known."""
        self._names[name] = hosts

    def reset(self, one: str, other: str = "") -> int:
        """Break every connection of a host, or between two; return how many. Both ends hear of it."""
        broken = 0
        for process, streams in self._streams.items():
            for stream in list(streams):
                there = self._hosts.get(stream.get_extra_info("peername")[0], "")
                if process.host == one and (not other or there == other):
                    broken += 1
                    stream.abort()
        return broken

    def fail_host(self, host: str) -> None:
        """Let *host* go without a word, with every process on it: nobody's connection hears of it."""
        self._down.add(host)
        for process in [one for one in self._streams if one.host == host]:
            process.kill()

    def revive_host(self, host: str) -> None:
        """Let it be there again: it knows nothing of the connections that it had."""
        self._down.discard(host)
        for link in self._links.values():
            if link.target == host:
                link.go_on()

    def is_down(self, host: str) -> bool:
        """Whether *host* is gone."""
        return host in self._down

    def later(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        """Call back, on behalf of the network itself."""
        self.loop.at(self.loop.outside, seconds, callback, *args)

    def address(self, host: str) -> str:
        """Return the IP address of *host*."""
        if host not in self._addresses:
            number = len(self._addresses) + 1
            self._addresses[host] = f"10.0.{number // 250}.{number % 250 + 1}"
            self._hosts[self._addresses[host]] = host
        return self._addresses[host]

    def listen(
        self, process: Process, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Let *process* listen.

        Raises:
            OSError: somebody else does already.
        """
        if not port:
            self._ports += 1
            port = self._ports
        if (process.host, port) in self._listeners:
            raise OSError(
                98, f"error while attempting to bind on address ({host!r}, {port}): address already in use"
            )
        listener = Listener(self, process, (host or "0.0.0.0", port), factory)  # noqa: S104 - in memory
        self._listeners[process.host, port] = listener
        self._known(process)
        return listener

    def unlisten(self, listener: Listener) -> None:
        """Let it listen no more; its connections stay."""
        if self.listens(listener):
            del self._listeners[listener.process.host, listener.port]

    def listens(self, listener: Listener) -> bool:
        """Whether it does."""
        return self._listeners.get((listener.process.host, listener.port)) is listener

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, process: Process
    ) -> tuple[Stream, P]:
        """Connect *process* to what listens there.

        Raises:
            OSError: nobody listens, the name is not known, or nothing came back in time.
        """
        there = self._host(host, process)
        self._known(process)
        way, back = self.between(process.host, there)
        await self._travel(way, there)
        listener = self._listeners.get((there, port))
        if listener is None:
            await self._travel(back, there)
            self.on_event("refused", f"{process.name} to {there}:{port}")
            raise ConnectionRefusedError(111, f"Connect call failed ('{host}', {port})")
        self._ports += 1
        addresses = (self.address(process.host), self._ports), (self.address(there), port)
        mine = Stream(self, process, copy_context(), addresses)
        theirs = Stream(self, listener.process, listener.context, (addresses[1], addresses[0]))
        out, in_ = _Pipe(self, way, mine, theirs), _Pipe(self, back, theirs, mine)
        mine.join(out, in_)
        theirs.join(in_, out)
        self.opened(mine)
        self.opened(theirs)
        self.on_event("connected", f"{process.name} to {there}:{port}")
        self.loop.soon(
            listener.process, lambda: listener.context.copy().run(theirs.begin, listener.factory())
        )
        await self._travel(back, there)
        protocol = factory()
        mine.begin(protocol)
        return mine, protocol

    def resolve(self, host: str, port: int, process: Process) -> list[tuple[Any, ...]]:
        """Return what `getaddrinfo` does.

        Raises:
            OSError: the name is not known.
        """
        names = self._names.get(host, (host,))
        if not names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found: list[tuple[Any, ...]] = []
        for name in names:
            ip = host if host in _HERE or host in self._hosts else self.address(name)
            found.append(
                (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip or "127.0.0.1", port))
            )
        self._known(process)
        return found

    def end(self) -> None:
        """Let go of every connection."""
        for streams in list(self._streams.values()):
            for stream in list(streams):
                stream.vanish(silently=True)

    def next_number(self) -> int:
        """Return a number that no other stream has."""
        self._numbers += 1
        return self._numbers

    def opened(self, stream: Stream) -> None:
        """Take note of it; a process that ends lets go of it."""
        if stream.process.is_alive:
            self._known(stream.process)[stream] = None
        else:
            stream.vanish(silently=self.is_down(stream.process.host))

    def closed(self, stream: Stream) -> None:
        """Forget it."""
        self._known(stream.process).pop(stream, None)

    def _known(self, process: Process) -> dict[Stream, None]:
        if process not in self._streams:
            self._streams[process] = {}
            process.at_end.append(self._forget)
        return self._streams[process]

    def _forget(self, process: Process) -> None:
        streams = self._streams.pop(process, {})
        for key in [key for key, one in self._listeners.items() if one.process is process]:
            del self._listeners[key]
        for stream in list(streams):
            stream.vanish(silently=self.is_down(process.host))
        self._streams.pop(process, None)

    def _host(self, host: str, process: Process) -> str:
        if host in _HERE or host in _EVERYWHERE:
            return process.host
        if host in self._hosts:
            return self._hosts[host]
        names = self._names.get(host, (host,))
        if not names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return names[0] if len(names) == 1 else self.random.choice(names)

    async def _travel(self, link: Link, there: str) -> None:
        """Return when a packet has come over *link*."""
        if self.is_down(there):
            await asyncio.sleep(CONNECT_S)
            raise TimeoutError(110, "Connect call failed: Connection timed out")
        try:
            await link.healed(CONNECT_S)
        except TimeoutError:
            raise TimeoutError(110, "Connect call failed: Connection timed out") from None
        await asyncio.sleep(link.takes_s(self.random))


class NetworkLoop(SimLoop):
    """A loop whose sockets are streams of a network in memory."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.network: Final = Network(self, Random(f"{seed}:network"))

    def close(self) -> None:
        """End everything."""
        self.network.end()
        super().close()

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], P],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_: object,
    ) -> tuple[Stream, P]:
        """As asyncio's, without TLS."""
        if ssl:
            raise NotImplementedError("no TLS in a simulation")
        if isinstance(sock, PlainSocket):
            host, port = sock.there
        return await self.network.connect(protocol_factory, host or "", port or 0, self._whose())

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        **_: object,
    ) -> Listener:
        """As asyncio's, without TLS."""
        name = host if isinstance(host, str) else ""
        return self.network.listen(self._whose(), name, port or 0, protocol_factory)

    async def getaddrinfo(self, host: Any, port: Any, **_: object) -> list[tuple[Any, ...]]:  # type: ignore[override]
        """As asyncio's."""
        await asyncio.sleep(0)
        name = host.decode() if isinstance(host, bytes) else host or ""
        return self.network.resolve(name, int(port or 0), self._whose())

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """As asyncio's."""
        return str(sockaddr[0]), str(sockaddr[1])

    def _whose(self) -> Process:
        return PROCESS.get(None) or self.outside


class PlainSocket:
    """What stands for a socket that is connected before a protocol has it, as aiohttp does."""

    family: Final = socket.AF_INET

    def __init__(self, there: tuple[str, int]) -> None:
        self.there: Final = there

    def close(self) -> None: ...


async def start_connection(addr_infos: Iterable[tuple[Any, ...]], **_: object) -> PlainSocket:
    """Stand in for aiohappyeyeballs': the connection is made when the protocol is there."""
    await asyncio.sleep(0)
    for info in addr_infos:
        return PlainSocket((info[4][0], info[4][1]))
    raise OSError("no address to connect to")
