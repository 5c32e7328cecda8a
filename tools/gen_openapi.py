"""Writes `docs/openapi.json`: the hook gateway's calls, as it serves them itself at ``/openapi.json``.

``--check`` as in `gen_schemas.py`.
"""

import json
import sys
from pathlib import Path
from typing import Final

from generated import settle

from sunk_hook_gateway.http.openapi import document

DOCUMENT: Final = Path("docs/openapi.json")
VERSION: Final = "0.1.0"


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    text = json.dumps(document(VERSION), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return settle({DOCUMENT: text}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
