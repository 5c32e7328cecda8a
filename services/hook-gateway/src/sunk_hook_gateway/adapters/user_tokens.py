"""Whose a token of Slurm is, by the process beside this one that has Slurm's key."""

from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from sunk_hook_gateway.access.tokens import FORBIDDEN, AccessError
from sunk_runtime.errors import TransientError

MAX_TOKEN: Final = 4000
MAX_ANSWER: Final = 4096
WITHIN_S: Final = 3.0
REST_S: Final = 10.0


class Checked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose a token is, why it counts for nothing, or why that cannot be told now."""

    user: str = ""
    error: str = ""
    later: str = ""


class UserTokens:
    """Tells Slurm's users by their tokens (``scontrol token``)."""

    def __init__(self, socket: Path | None) -> None:
        """Ask the checker at *socket*; None: no user is let in."""
        self._socket = socket
        self._rests_until = float("-inf")

    async def user(self, token: str) -> str:
        """Return the user whose *token* it is.

        Raises:
            AccessError: of no user of this Slurm cluster.
            TransientError: it is not known now.
        """
        if self._socket is None:
            why = "the hook gateway does not answer users of Slurm: set login.explain.enabled of helm/slurm"
            raise AccessError(f"{why} (USER_TOKENS_SOCKET of the hook-gateway)", status=FORBIDDEN)
        if len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable():
            raise AccessError("token is malformed")
        if anyio.current_time() < self._rests_until:
            raise TransientError("the process that checks users' tokens did not answer a moment ago")
        try:
            with anyio.fail_after(WITHIN_S):
                async with await anyio.connect_unix(self._socket) as stream:
                    await stream.send(token.encode() + b"\n")
                    line = await BufferedByteReceiveStream(stream).receive_until(b"\n", MAX_ANSWER)
            found = msgspec.json.decode(line, type=Checked)
        except TimeoutError as error:
            self._rests_until = anyio.current_time() + REST_S  # One that hangs keeps each connection.
            raise TransientError("the process that checks users' tokens does not answer") from error
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise TransientError("the process that checks users' tokens does not answer") from error
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, msgspec.DecodeError) as error:
            raise TransientError("the process that checks users' tokens gave an unexpected answer") from error
        if found.later:
            raise TransientError(found.later)
        if not found.user:
            raise AccessError(found.error or "token is not valid")
        return found.user
