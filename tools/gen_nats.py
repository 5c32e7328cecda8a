"""Writes the users of the bus, and of the server of other teams, with their permissions for the chart.

The file is `helm/sunk/files/nats-users.json`.
`<cluster>` stands for a Slurm cluster. A user with it in the name is there once for each; another user has
each line with it once for each. ``--check`` writes nothing and fails if the file is not what the code says.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from generated import settle

from sunk_events.permissions import User, as_nats, users
from sunk_events.teams import team_users

FILE: Final = Path("helm/sunk/files/nats-users.json")
CLUSTER: Final = "<cluster>"


def content() -> str:
    """Return what the file must hold; a user without permissions may do everything."""
    made = {"users": _listed(users([CLUSTER])), "teams": _listed(team_users([CLUSTER]))}
    return json.dumps(made, indent=2) + "\n"


def _listed(found: tuple[User, ...]) -> list[dict[str, Any]]:
    return [
        {"name": user.name, "permissions": as_nats(user.permissions) if user.permissions else None}
        for user in found
    ]


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle({FILE: content()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
