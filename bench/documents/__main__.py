"""`python -m bench.documents`."""

import sys

from bench.documents.command import run

sys.exit(run(sys.argv[1:]))
