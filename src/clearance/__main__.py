"""`python -m clearance` is the command line."""

import sys

from clearance.cli.command_line import main

sys.exit(main())
