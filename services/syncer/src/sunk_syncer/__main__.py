"""python -m sunk_syncer."""

from sunk_syncer.main import main

main()
