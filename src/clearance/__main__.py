"""`python -m clearance` is the command line."""

import sys

from clearance.cli import main

sys.exit(main())
