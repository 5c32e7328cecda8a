"""``python -m sunk_lab``."""

import sys

from sunk_lab.cli import main

sys.exit(main())
