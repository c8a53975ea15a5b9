"""`python -m bucketmq.testing.bench`."""

import sys

from bucketmq.testing.bench import main_run

if __name__ == "__main__":
    sys.exit(main_run(sys.argv[1:]))
