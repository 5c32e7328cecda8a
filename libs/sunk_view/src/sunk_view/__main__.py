"""`python -m sunk_view`."""

from sunk_view.main import main

main()
