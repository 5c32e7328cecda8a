"""`python -m sunk_bus`."""

import sys

from sunk_bus.main import main

sys.exit(main())
