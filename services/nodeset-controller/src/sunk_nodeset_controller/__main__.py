"""``python -m sunk_nodeset_controller``."""

from sunk_nodeset_controller.main import main

main()
