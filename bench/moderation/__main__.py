"""`python -m bench.moderation`."""

import sys

from bench.moderation.command import run

sys.exit(run(sys.argv[1:]))
