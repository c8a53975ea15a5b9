"""`python -m bucketmq.testing.bench.spark`."""

import sys

from bucketmq.testing.bench.spark.command import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
