"""Writes the users of the bus with their permissions for the chart: `helm/sunk/files/nats-users.json`.

`<cluster>` stands for a Slurm cluster. A user with it in the name is there once for each; another user has
each line with it once for each. ``--check`` writes nothing and fails if the file is not what the code says.
"""

import json
import sys
from pathlib import Path
from typing import Final

from sunk_events.permissions import as_nats, users

FILE: Final = Path(__file__).resolve().parent.parent / "helm" / "sunk" / "files" / "nats-users.json"
CLUSTER: Final = "<cluster>"


def content() -> str:
    """Return what the file must hold; a user without permissions may do everything."""
    made = [
        {"name": user.name, "permissions": as_nats(user.permissions) if user.permissions else None}
        for user in users([CLUSTER])
    ]
    return json.dumps({"users": made}, indent=2) + "\n"


def main() -> int:
    """Write or check; return the exit status."""
    wanted = content()
    if "--check" not in sys.argv[1:]:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(wanted)
        return 0
    if not FILE.exists() or FILE.read_text() != wanted:
        print(f"{FILE.relative_to(FILE.parents[3])} is stale: run ./task gen", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
