"""``python -m sunk_hook_gateway``."""

from sunk_hook_gateway.main import main

main()
