"""What each NATS server does before it starts: sees that its volume has what it is to serve.

One server keeps its streams in VOLUME/jetstream, and so do three. One server shows no stream of three, and
takes it over without its consumers once a client makes one of that name; three delete the streams of one.
While the bus grows, the three keep theirs in VOLUME/cluster, and the one server goes on with its own. Once
all streams are copied, those of the three take the place; the others stay in VOLUME/standalone. If growing is
given up, the one server removes the copy before it starts, because the copy is old from then on.

Whatever breaks off is done again.
"""

import shutil
import socket
import sys
from pathlib import Path
from typing import NamedTuple

GROWN = "SUNK_GROWN"
"""The stream that exists where all others have been copied."""
WAY = 'see helm/sunk/README.md, "From one server to three"'
LISTENS_S = 5.0


class Volume(NamedTuple):
    """What the volume of a server has."""

    has_streams: bool = False
    """In its place."""
    is_of_three: bool = False
    """What is in its place."""
    has_copy: bool = False
    """What the three made while the bus grew."""
    is_copy_whole: bool = False
    has_former: bool = False
    """What the one server had, after the bus grew."""


def problem(volume: Volume, mode: str, *, is_first_alone: bool) -> str | None:
    """Return why the server must not start; None if it may.

    *is_first_alone*: the first server is none of the three, so it goes on with streams of its own.
    """
    if mode != "three":
        return f"three servers have used it, so one server must not. {WAY}" if volume.is_of_three else None
    if volume.has_copy and not volume.is_copy_whole:
        return f"not all streams are copied yet: set nats.growing and upgrade again, {WAY}"
    if volume.has_copy and is_first_alone:
        return f"it has a copy, and the first server is not one of the three: set nats.growing, {WAY}"
    if volume.has_copy and volume.has_streams and volume.has_former:
        return "VOLUME/standalone already exists from an earlier time: move it away"
    if not volume.has_copy and volume.has_streams and not volume.is_of_three:
        return f"the streams belong to one server, and three would delete them: set nats.growing first, {WAY}"
    return None


def seen(folder: Path) -> Volume:
    """Return what is in *folder*."""
    place, copy = folder / "jetstream", folder / "cluster/jetstream"
    return Volume(
        has_streams=any(place.glob("*/streams/*")),
        is_of_three=(place / "$SYS/_js_/_meta_").is_dir(),
        has_copy=copy.is_dir(),
        is_copy_whole=any(copy.glob(f"*/streams/{GROWN}")),
        has_former=(folder / "standalone").exists(),
    )


def is_alone(first: str) -> bool:
    """Return whether the server at *first* is another than ours, and does not listen for servers there."""
    host, _, port = first.rpartition(":")
    if host.partition(".")[0] == socket.gethostname():
        return False
    try:
        socket.create_connection((host, int(port)), LISTENS_S).close()
    except OSError:
        return True
    return False


def settle(folder: Path, volume: Volume) -> None:
    """Put the copy into its place; a copy that is there already is success."""
    place, copy = folder / "jetstream", folder / "cluster"
    if volume.has_copy:
        if volume.has_streams:
            place.rename(folder / "standalone")
        elif place.exists():
            shutil.rmtree(place)
        (copy / "jetstream").rename(place)
    if copy.is_dir():
        copy.rmdir()


def give_up(folder: Path) -> None:
    """Remove the copy; it not being there is success. No server ever sees a half of it."""
    copy, old = folder / "cluster", folder / "given-up"
    if old.exists():
        shutil.rmtree(old)
    if copy.exists():
        copy.rename(old)
        shutil.rmtree(old)


def main(mode: str, where: str, first: str) -> int:
    """Check, and make ready what the server serves in *mode*; return the exit status."""
    folder = Path(where)
    volume = seen(folder)
    why = problem(volume, mode, is_first_alone=mode == "three" and volume.has_copy and is_alone(first))
    if why:
        print(f"{where}: {why}", flush=True)
        return 1
    if mode == "three":
        settle(folder, volume)
    elif mode == "one":
        give_up(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
