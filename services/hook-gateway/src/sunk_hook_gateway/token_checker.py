"""Says whose a token of Slurm is: the one process of the gateway's Pod that sees Slurm's key.

The gateway hands it each token through a Unix socket, which only the Pod's containers can reach. So a fault
in the gateway, which compute nodes and login nodes call, does not give away the key with which any program
becomes Slurm's root.

What must stay true: the process does not end by itself. A container that restarts takes its Pod, and so the
gateway, out of the Service by which prologs call it.

Arguments: the key's file, the socket. A line with a token gets a line of JSON: ``user``, ``error``, or
``later`` where it cannot be told now.

Source: Slurm's jwt.html. ``scontrol token`` signs with slurmctld's ``jwt_key``.
"""

import logging
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from sunk_hook_gateway.adapters.user_tokens import MAX_TOKEN, Checked
from sunk_runtime.errors import ConfigError
from sunk_runtime.lifecycle import run
from sunk_slurm.tokens import user_of

log = logging.getLogger(__name__)

WITHIN_S: Final = 2.0
PAUSE_S: Final = 1.0
"""After a failure."""


def checked(line: bytes, key_file: Path, now_s: float) -> Checked:
    """Return whose the token in *line* is; the key is read each time, for it may be rotated."""
    try:
        key = key_file.read_bytes()
    except OSError as error:
        return Checked(later=f"Slurm's key cannot be read: {error.strerror}")
    if not key:
        return Checked(later="Slurm's key is empty")
    try:
        return Checked(user=user_of(line.decode("ascii"), key, now_s))
    except UnicodeDecodeError:
        return Checked(error="the token is malformed")
    except ValueError as error:
        return Checked(error=str(error))


async def answer(key_file: Path, stream: ByteStream) -> None:
    """Answer one token. No failure of one ends the process."""
    try:
        with anyio.move_on_after(WITHIN_S):
            async with stream:
                line = await BufferedByteReceiveStream(stream).receive_until(b"\n", MAX_TOKEN + 1)
                await stream.send(msgspec.json.encode(checked(line, key_file, time.time())) + b"\n")
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError):
        log.debug("a caller ended the connection, or sent no line")
    except Exception:
        log.exception("a token was not checked")


async def serve(key_file: Path, socket: Path) -> None:
    """Answer tokens until cancelled."""
    while True:
        try:
            async with await anyio.create_unix_listener(socket, mode=0o600) as listener:
                await listener.serve(partial(answer, key_file))
        except* (OSError, anyio.BrokenResourceError) as group:  # Such as too many open files.
            errors = [str(one) for one in group.exceptions]
            log.error("tokens are not checked", extra={"errors": errors})  # noqa: TRY400 - no bug
        await anyio.sleep(PAUSE_S)


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
