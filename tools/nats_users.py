"""Prints the users of the bus, with their permissions, as nats-server's configuration has them.

``nats_users.py --clusters a,b --passwords FOLDER``: *FOLDER* holds a password a user, in a file of the user's
name; one that is missing is made, for the owner's eyes only. What is printed holds bcrypt's words for them.
"""

import argparse
import secrets
import sys
from pathlib import Path
from typing import Final

import bcrypt
import msgspec

from sunk_events.base import ClusterName
from sunk_events.permissions import LINK, configuration, users
from sunk_events.teams import listener

_ROUNDS: Final = 5
"""Nobody guesses 256 random bits: hashing need not be slow, and all connect at once after a restart."""


def password_of(user: str, folder: Path) -> str:
    """Return the password of *user*, made now if there is none; it is never seen half-written."""
    file = folder / user
    if not file.exists():
        draft = folder / f".{user}"
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(32) + "\n")
        draft.rename(file)
    return file.read_text().strip()


def hashed(password: str) -> str:
    """Return what nats-server compares *password* with."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(_ROUNDS)).decode()


def main() -> int:
    """Print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", required=True, help="the Slurm clusters, comma-separated")
    parser.add_argument("--passwords", required=True, type=Path, help="a folder, made if it is not there")
    given = parser.parse_args()
    try:
        clusters = msgspec.convert(given.clusters.split(","), list[ClusterName])
    except msgspec.ValidationError as error:
        parser.error(f"--clusters {given.clusters!r}: {error}")
    given.passwords.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Without a server of other teams nothing connects as its link, and a team hears facts here.
    wanted = (*(user for user in users(clusters) if user.name != LINK), listener())
    passwords = {user.name: hashed(password_of(user.name, given.passwords)) for user in wanted}
    print(configuration(wanted, passwords), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
