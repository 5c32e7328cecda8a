"""A logind that says one thing: this machine shuts down. For kubelets on nodes that have no systemd.

A kubelet with `shutdownGracePeriod` asks systemd-logind on the system's D-Bus for a delay (Inhibit), hears of
a shutdown by the signal PrepareForShutdown, ends its Pods, and gives the delay back. This is the bus and
logind in one: as much of either as a kubelet calls.

Source: D-Bus Specification, "Message Protocol" and "Authentication Protocol"; org.freedesktop.login1(5).
"""

import os
import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

SOCKET: Final = "/run/dbus/system_bus_socket"
_OBJECT: Final = "/org/freedesktop/login1"
_MANAGER: Final = "org.freedesktop.login1.Manager"
_LONGEST_DELAY_US: Final = 600_000_000  # More than any kubelet here asks for: it changes no settings then.
_RETURN, _ERROR, _SIGNAL = 2, 3, 4
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_TO, _SENDER, _SIGNATURE, _FDS = 1, 2, 3, 4, 5, 7, 8, 9
_HEADER: Final = struct.Struct("<cBBBII")


def _text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def _signature(value: str) -> bytes:
    return bytes([len(value)]) + value.encode() + b"\0"


def _padded(data: bytes, size: int = 8) -> bytes:
    return data + bytes(-len(data) % size)


def message(kind: int, fields: dict[int, str | int], signature: str = "", body: bytes = b"") -> bytes:
    """Return a message of *kind* with the header *fields* and a *body* of the types *signature*."""
    if signature:
        fields = fields | {_SIGNATURE: signature}
    header = b""
    for code, value in fields.items():
        match code, value:
            case (8, str()):
                encoded = b"g\0" + _signature(value)
            case (1, str()):
                encoded = b"o\0" + _text(value)
            case (_, str()):
                encoded = b"s\0" + _text(value)
            case (_, number):
                encoded = b"u\0" + struct.pack("<I", number)
        header = _padded(header) + bytes([code, 1]) + encoded
    start = _HEADER.pack(b"l", kind, 0, 1, len(body), 1) + struct.pack("<I", len(header))
    return _padded(start + header) + body


def read_fields(data: bytes) -> dict[int, str]:
    """Return the texts among the header's fields *data*, by code."""
    found: dict[int, str] = {}
    at = 0
    while at < len(data):
        at += -at % 8
        code, kind = data[at], data[at + 2 : at + 3]
        at += 4
        if kind == b"g":
            size, start = data[at], at + 1
        elif kind == b"u":
            at += 4
            continue
        else:
            size, start = struct.unpack_from("<I", data, at)[0], at + 4
        found[code] = data[start : start + size].decode()
        at = start + size + 1
    return found


class _Caller(socketserver.StreamRequestHandler):
    """One connection: a kubelet."""

    @property
    def _logind(self) -> "Logind":
        return cast("Logind", self.server)

    def handle(self) -> None:
        self._let_in()
        try:
            for serial, fields in self._calls():
                self._answer(serial, f"{fields.get(_INTERFACE)}.{fields[_MEMBER]}")
        finally:
            self._logind.listeners.discard(self.connection)

    def _let_in(self) -> None:
        for line in self.rfile:
            match line.strip(b"\0\r\n").split():
                case [b"BEGIN"]:
                    return
                case [b"AUTH", b"EXTERNAL"]:
                    answer = b"DATA"
                case [b"AUTH", b"EXTERNAL", _] | [b"DATA", *_]:
                    answer = b"OK " + b"0" * 32
                case [b"NEGOTIATE_UNIX_FD"]:
                    answer = b"AGREE_UNIX_FD"
                case _:
                    answer = b"REJECTED EXTERNAL"
            self.wfile.write(answer + b"\r\n")

    def _calls(self) -> Iterator[tuple[int, dict[int, str]]]:
        while start := self.rfile.read(_HEADER.size + 4):
            *_, body, serial = _HEADER.unpack_from(start)
            (size,) = struct.unpack_from("<I", start, _HEADER.size)
            fields = self.rfile.read(size)
            self.rfile.read(-size % 8 + body)
            yield serial, read_fields(fields)

    def _answer(self, serial: int, call: str) -> None:
        reply: dict[int, str | int] = {_REPLY_TO: serial, _SENDER: ":1.0"}
        match call.removeprefix("org.freedesktop."):
            case "DBus.Hello":
                self.wfile.write(message(_RETURN, reply, "s", _text(":1.1")))
            case "DBus.AddMatch":
                self._logind.listeners.add(self.connection)
                self.wfile.write(message(_RETURN, reply))
            case "DBus.Properties.Get":  # InhibitDelayMaxUSec: nothing else is asked for.
                delay = _padded(_signature("t")) + struct.pack("<Q", _LONGEST_DELAY_US)
                self.wfile.write(message(_RETURN, reply, "v", delay))
            case "login1.Manager.Inhibit":
                held, given = os.pipe()
                answer = message(_RETURN, reply | {_FDS: 1}, "h", struct.pack("<I", 0))
                socket.send_fds(self.connection, [answer], [given])
                os.close(given)
                threading.Thread(target=self._logind.await_release, args=(held,), daemon=True).start()
            case _:
                unknown = "org.freedesktop.DBus.Error.UnknownMethod"
                self.wfile.write(message(_ERROR, reply | {_ERROR_NAME: unknown}))


class Logind(socketserver.ThreadingUnixStreamServer):
    """Tells on standard output of each delay that is taken (`delays`) and given back (`goes`)."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).unlink(missing_ok=True)
        super().__init__(path, _Caller)
        self.listeners: set[socket.socket] = set()

    def await_release(self, held: int) -> None:
        """Read until nobody holds the other end of *held* any more."""
        print("delays", flush=True)  # noqa: T201 - this is its output.
        os.read(held, 1)
        os.close(held)
        print("goes", flush=True)  # noqa: T201

    def shut_down(self) -> None:
        """Say that the machine is about to shut down."""
        fields: dict[int, str | int] = {
            _PATH: _OBJECT,
            _INTERFACE: _MANAGER,
            _MEMBER: "PrepareForShutdown",
            _SENDER: ":1.0",
        }
        for listener in tuple(self.listeners):
            listener.sendall(message(_SIGNAL, fields, "b", struct.pack("<I", 1)))


def main() -> None:
    """Serve, and shut down at each line of standard input."""
    with Logind(SOCKET) as logind:
        threading.Thread(target=logind.serve_forever, daemon=True).start()
        for _line in sys.stdin:
            logind.shut_down()


if __name__ == "__main__":
    main()
