"""Says whose a token of Slurm is: the one process of the gateway's Pod that sees Slurm's key.

The gateway hands it each token through a Unix socket, which only the Pod's containers can reach. So a fault
in the gateway, which compute nodes and login nodes call, does not give away the key with which any program
becomes Slurm's root.

Arguments: the key's file, the socket. A line with a token gets a line of JSON: ``user`` or ``error``.

Source: Slurm's jwt.html. ``scontrol token`` signs with slurmctld's ``jwt_key``.
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from sunk_runtime.errors import ConfigError
from sunk_runtime.lifecycle import run
from sunk_slurm.tokens import user_of

MAX_TOKEN: Final = 4096
WITHIN_S: Final = 2.0


class Checked(msgspec.Struct, frozen=True):
    """Whose a token is, or why it counts for nothing."""

    user: str = ""
    error: str = ""


def checked(token: str, key_file: Path, now_s: float) -> Checked:
    """Return whose *token* is; the key is read each time, for it may be rotated."""
    try:
        return Checked(user=user_of(token, key_file.read_bytes(), now_s))
    except ValueError as error:
        return Checked(error=str(error))


async def answer(key_file: Path, stream: ByteStream) -> None:
    """Answer one token."""
    async with stream:
        with anyio.move_on_after(WITHIN_S):
            try:
                line = await BufferedByteReceiveStream(stream).receive_until(b"\n", MAX_TOKEN)
                found = checked(line.decode("ascii"), key_file, time.time())
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, UnicodeError):
                found = Checked(error="the token is malformed")
            except OSError as error:
                found = Checked(error=f"Slurm's key cannot be read: {error.strerror}")
            try:
                await stream.send(msgspec.json.encode(found) + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def serve(key_file: Path, socket: Path) -> None:
    """Answer tokens until cancelled."""
    async with await anyio.create_unix_listener(socket, mode=0o600) as listener:
        await listener.serve(partial(answer, key_file))


async def work() -> None:
    """Serve what the arguments say."""
    if len(sys.argv) != 3:  # noqa: PLR2004 - and the program's name
        raise ConfigError("token_checker KEY_FILE SOCKET")
    await serve(Path(sys.argv[1]), Path(sys.argv[2]))


def main() -> None:
    """Run the process."""
    run("token-checker", work)


if __name__ == "__main__":
    main()
