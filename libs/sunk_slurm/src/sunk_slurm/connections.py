"""The connections to one slurmrestd: a request out and its answer back, by httpx' transport.

Without httpx' client, which does as browsers do: what is in one answer (cookies, where to go instead, how it
is packed) has no say in it, nor in the next request.

What must stay true: an error says whether the request may have been sent; a call that is given up at
whatever moment leaves no connection behind; Slurm's token goes to slurmrestd alone.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
import anyio.abc
import anyio.lowlevel
import httpx

from sunk_runtime.errors import ConfigError
from sunk_slurm.answers import Reply
from sunk_slurm.call import Call
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.trust import Trust

Transport = httpx.AsyncBaseTransport

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""10,000 nodes are 27 MB."""
CONNECT_TIMEOUT_S: Final = 3.0
IDLE_S: Final = 60.0
"""A connection that was not used for so long is not used again: what stands between may have forgotten it."""
_TIMEOUT: Final = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S).as_dict()
"""A call has a time as a whole."""
_HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Connection": "keep-alive",
    "Content-Type": "application/json",
}
_MADE: Final = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.InvalidURL,
)


class Connections:
    """To one slurmrestd. `close` them."""

    def __init__(self, url: str, kept: int, *, trust: Trust | None, transport: Transport | None) -> None:
        """Describe them.

        Args:
            url: Of slurmrestd.
            kept: How many are kept for the next call; how many there are is their user's business.
            trust: The certificate authorities of slurmrestd, where the address says https.
            transport: For tests.

        Raises:
            ConfigError: *url* is no address of HTTP.
        """
        try:
            address = httpx.URL(url)
            host = address.host
            host.encode("idna")
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ConfigError(f"slurmrestd's address is not valid: {error}") from error
        if address.scheme not in {"http", "https"} or not host:
            raise ConfigError("slurmrestd's address must be a URL such as http://slurmrestd:6820")
        is_tls = address.scheme == "https"
        self.name: Final = f"{host}:{address.port or (443 if is_tls else 80)}"
        self._base = str(address.copy_with(query=None, fragment=None)).rstrip("/")
        self._transport = transport or httpx.AsyncHTTPTransport(
            verify=trust or is_tls,  # Without TLS no authorities are read.
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=kept, keepalive_expiry=IDLE_S
            ),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close every one."""
        await self._transport.aclose()

    async def exchange(self, call: Call, path: str, token: str) -> Reply:
        """Send once and return what came back, whatever that is.

        Raises:
            SlurmUnavailableError: nothing that is HTTP, or too much.
        """
        made: list[anyio.abc.AsyncResource] = []

        async def note(event: str, info: Mapping[str, Any]) -> None:  # Any: as httpcore has it.
            """Have a call that was given up end as its connection is made.

            A moment later httpcore 1.0.9 would keep a connection that no call is ever given.
            """
            if event in _MADE:
                made.append(info["return_value"])
                await anyio.lowlevel.checkpoint_if_cancelled()

        try:
            request = httpx.Request(
                call.method,
                self._base + path,
                params=call.params or None,
                headers={**_HEADERS, "Authorization": f"Bearer {token}"},
                content=call.body,
                extensions={"timeout": _TIMEOUT, "trace": note},
            )
            response = await self._transport.handle_async_request(request)
            try:
                return Reply(response.status_code, await _content(call, response))
            finally:
                await response.aclose()
        except (httpx.TransportError, httpx.InvalidURL, ssl.SSLError, AttributeError) as error:
            # anyio asks for the peer of a socket that is gone: on uvloop, where it was reset as it was made.
            if isinstance(error, AttributeError) and error.name != "getpeername":
                raise
            text = f"{call.doing}: {type(error).__name__}"
            if isinstance(error, (httpx.ConnectError, ssl.SSLError)):  # Which certificate, which port.
                text += f": {_why(error)}"
            raise SlurmUnavailableError(text, is_sent=not isinstance(error, _NOT_SENT)) from error
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):  # httpcore forgets one that was about to speak TLS.
                for stream in made:
                    await stream.aclose()
            raise


async def _content(call: Call, response: httpx.Response) -> bytes:
    """Return the body, unless it is longer than any answer of Slurm."""
    parts: list[bytes] = []
    length = 0
    async for part in cast("httpx.AsyncByteStream", response.stream):  # As of every such transport.
        length += len(part)
        if length > MAX_ANSWER_BYTES:
            raise SlurmUnavailableError(f"{call.doing}: more than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _why(error: BaseException) -> str:
    """Return what the system said: httpx says of each address that all attempts failed."""
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, BaseExceptionGroup):  # One for each address of a name.
            behind = cast("BaseExceptionGroup[BaseException]", behind).exceptions[-1]
        if isinstance(behind, OSError) and behind.errno is not None:
            return str(behind)
        behind = behind.__cause__ or behind.__context__
    return str(error)
