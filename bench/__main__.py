"""`python -m bench`."""

import sys

from bench import main_run

if __name__ == "__main__":
    sys.exit(main_run(sys.argv[1:]))
