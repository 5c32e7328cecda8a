"""`python -m sunk_runtime.cli`."""

import sys

from sunk_runtime.cli.main import main

sys.exit(main())
