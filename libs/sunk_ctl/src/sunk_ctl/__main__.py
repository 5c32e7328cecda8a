"""`python -m sunk_ctl`."""

from sunk_ctl.main import main

main()
