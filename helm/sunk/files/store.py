"""What each of three NATS servers does before it starts: sees that its volume has what it is to serve.

One server keeps its streams in VOLUME/jetstream. Three do too, and do not read those of one server: they
would delete them. While the bus grows, the three keep theirs in VOLUME/cluster, and the one server goes on
with its own. Once all streams are copied, those of the three take the place; the others stay in
VOLUME/standalone. Whatever breaks off is done again.
"""

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

GROWN = "SUNK_GROWN"
"""The stream that exists where all others have been copied."""
WAY = 'helm/sunk/README.md, "From one server to three"'


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


def problem(volume: Volume, *, is_growing: bool) -> str | None:
    """Return why the server must not start; None if it may."""
    if is_growing:
        if volume.is_of_three:
            return "the bus has grown, or its claims of an earlier try are still there: see " + WAY
        return None
    if volume.has_copy and not volume.is_copy_whole:
        return "not all streams are copied yet: set nats.growing and upgrade again, see " + WAY
    if volume.has_copy and volume.has_streams and volume.has_former:
        return "VOLUME/standalone is there already, of an earlier time: move it away"
    if not volume.has_copy and volume.has_streams and not volume.is_of_three:
        return (
            "the streams are of one server, and three would delete them: set nats.growing first, see " + WAY
        )
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


def main(mode: str, where: str) -> int:
    """Check, and settle unless the bus grows; return the exit status."""
    folder = Path(where)
    volume = seen(folder)
    why = problem(volume, is_growing=mode == "growing")
    if why:
        print(f"{where}: {why}", flush=True)
        return 1
    if mode != "growing":
        settle(folder, volume)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
