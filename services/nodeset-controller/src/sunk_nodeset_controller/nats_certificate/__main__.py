"""`python -m sunk_nodeset_controller.nats_certificate`."""

from sunk_nodeset_controller.nats_certificate.main import main

main()
