"""`python -m bench.spark`."""

import sys

from bench.spark.command import run

sys.exit(run(sys.argv[1:]))
