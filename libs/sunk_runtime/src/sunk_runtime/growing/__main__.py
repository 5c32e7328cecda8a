"""`python -m sunk_runtime.growing`."""

import sys

from sunk_runtime.growing.main import main

sys.exit(main())
