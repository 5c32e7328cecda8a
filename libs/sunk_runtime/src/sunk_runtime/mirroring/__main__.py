"""`python -m sunk_runtime.mirroring`."""

import sys

from sunk_runtime.mirroring.main import main

sys.exit(main())
