"""`python -m sunk_nodeset_controller.nats_certificate`."""

import sys

from sunk_nodeset_controller.nats_certificate.main import main

sys.exit(main())
