"""Has nats-server read its certificate again when Kubernetes has renewed it in the Secret.

nats-server reads it at its start and when it gets SIGHUP. Connections stay.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

PAUSE_S = 10.0


def digest(folder: Path) -> str:
    """Return what the files of *folder* hold, in short."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def reload(pid_file: Path) -> bool:
    """Return whether the server of *pid_file* runs, and so reads its files again."""
    try:
        os.kill(int(pid_file.read_text()), signal.SIGHUP)
    except (OSError, ValueError) as error:
        print(f"nats-server not reloaded: {error}", flush=True)
        return False
    print("nats-server reads its certificate again", flush=True)
    return True


def main(pid_file: str, folder: str, pause_s: float = PAUSE_S) -> None:
    """Look at *folder* for ever. What changed before this program began counts too."""
    known = ""
    while True:
        try:
            found = digest(Path(folder))
        except OSError as error:  # Kubernetes replaces the files at this moment.
            print(f"certificate not read: {error}", flush=True)
        else:
            if found != known and reload(Path(pid_file)):
                known = found
        time.sleep(pause_s)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:4]))
