"""A process of the demo, which starts it: see `process`."""

import sys

from bucketmq.cli.demo.process import main

main(*sys.argv[1:])
