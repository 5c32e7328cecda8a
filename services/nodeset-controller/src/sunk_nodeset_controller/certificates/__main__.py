"""`python -m sunk_nodeset_controller.certificates`."""

from sunk_nodeset_controller.certificates.main import main

main()
