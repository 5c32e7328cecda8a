"""Writes `docs/openapi.json` and `docs/view-openapi.json`: calls of the hook gateway and of sunk-view.

The hook gateway serves its own at ``/openapi.json``. The API server lists that of the view, ``/openapi/v3``.

``--check`` as in `gen_schemas.py`.
"""

import json
import sys
from pathlib import Path
from typing import Final

from generated import settle

from sunk_hook_gateway.http.openapi import document
from sunk_view import openapi as view

DOCUMENT: Final = Path("docs/openapi.json")
VIEW: Final = Path("docs/view-openapi.json")
VERSION: Final = "0.1.0"


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    documents = {DOCUMENT: document(VERSION), VIEW: view.document()}
    texts = {
        path: json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for path, found in documents.items()
    }
    return settle(texts, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
