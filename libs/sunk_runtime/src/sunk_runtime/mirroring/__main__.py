"""`python -m sunk_runtime.mirroring`."""

from sunk_runtime.mirroring.main import main

main()
