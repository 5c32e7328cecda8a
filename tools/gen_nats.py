"""Writes the users of the bus with their permissions for the chart: `helm/sunk/files/nats-users.json`.

`<cluster>` stands for a Slurm cluster. A user with it in the name is there once for each; another user has
each line with it once for each. ``--check`` writes nothing and fails if the file is not what the code says.
"""

import json
import sys
from pathlib import Path
from typing import Final

from generated import settle

from sunk_events.permissions import as_nats, users

FILE: Final = Path("helm/sunk/files/nats-users.json")
CLUSTER: Final = "<cluster>"


def content() -> str:
    """Return what the file must hold; a user without permissions may do everything."""
    made = [
        {"name": user.name, "permissions": as_nats(user.permissions) if user.permissions else None}
        for user in users([CLUSTER])
    ]
    return json.dumps({"users": made}, indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle({FILE: content()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
