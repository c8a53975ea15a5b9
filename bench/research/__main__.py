"""`python -m bench.research`."""

import sys

from bench.research.command import run

sys.exit(run(sys.argv[1:]))
