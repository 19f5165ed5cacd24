"""Run the command line with `python -m clearance`."""

import sys

from clearance.cli import main

sys.exit(main())
