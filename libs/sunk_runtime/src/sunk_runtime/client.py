# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""nats-py's client, which what others send, and what we give up, neither ends nor misleads.

What must stay true: every message is handed over once, to the subscription that it came for, whatever its
publisher wrote; its reader goes on, and after `close` nothing does.

Source: nats-py 2.16, whose reader ends over any of these, while it says that it is connected.
"""

import re
from asyncio import CancelledError, Future  # Future: what nats-py itself puts into its queue of pings.
from typing import Any

import anyio
from nats.aio import client
from nats.aio.client import Srv
from nats.aio.msg import Msg
from nats.protocol import parser

from sunk_runtime.bus_tls import NoTlsError
from sunk_runtime.message import Message


def _with_blanks_alone(line: re.Pattern[bytes]) -> re.Pattern[bytes]:
    return re.compile(line.pattern.replace(rb"^\s", rb"^ \t\r\n").replace(rb"\s", rb"[ \t]"))


# To NATS a vertical tab is a letter of a subject; nats-py took it for the subject's end, and what follows for
# the number of a subscription. It has no other way to say what a line is.
parser.MSG_RE = _with_blanks_alone(parser.MSG_RE)
parser.HMSG_RE = _with_blanks_alone(parser.HMSG_RE)


class Client(client.Client):
    """A client whose reader goes on."""

    msg_class = Message
    _is_over = False

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 - nats-py's
        old_style: bool = False,  # noqa: FBT001, FBT002 - nats-py's
        headers: dict[str, str] | None = None,
    ) -> Msg:
        """Ask once there is a connection: what waits for one is asked in vain, and remembered for ever."""
        with anyio.fail_after(timeout):
            while self.is_reconnecting or self.is_connecting:  # noqa: ASYNC110 - nats-py has no event of it
                await anyio.sleep(0.05)
            return await super().request(subject, payload, timeout, old_style, headers)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - nats-py's
        """Use TLS where we must, whatever the server says: who is in between could take its word away."""
        if initial_connection and self.options.get("tls"):
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NoTlsError("the server does not use TLS")
            info["tls_required"] = True
        current, known = self._current_server, {id(server) for server in self._server_pool}
        await super()._process_info(info, initial_connection)
        if current is not None and current.tls_name:  # Else another server's address becomes the name.
            for server in self._server_pool:
                if id(server) not in known and server.tls_name:
                    server.tls_name = current.tls_name

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """Read what there is of them."""
        try:
            return await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError):
            return None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        """Replace what is no text, so that nobody's subject is that of another."""
        subject, reply = (raw.decode(errors="replace").encode() for raw in (subject, reply))
        return super()._build_message(sid, subject, reply, data, headers)

    async def _send_ping(self, future: Future[Any] | None = None) -> None:
        """Send what waits first: the answer to a flush says that all before it has arrived."""
        if self._pending and self._transport is not None and self.is_connected:
            self._transport.writelines(self._pending[:])
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 - nats-py's
        """End it, and with it a reconnect that is under way."""
        if status == self.CLOSED:
            self._is_over = True
        await super()._close(status, do_cbs)

    async def _connect_to_server(self, s: Srv) -> None:
        """Connect unless it was closed: a cancel that meets a refused connection is lost in nats-py."""
        if not self._is_over:
            await super()._connect_to_server(s)
        if self._is_over:
            if self._transport is not None:
                self._transport.close()
            raise CancelledError

    async def _process_pong(self) -> None:
        """Accept a flush that was given up."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = Future()
        await super()._process_pong()
