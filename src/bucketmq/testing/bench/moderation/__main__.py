"""`python -m bucketmq.testing.bench.moderation`."""

import sys

from bucketmq.testing.bench.moderation.command import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
