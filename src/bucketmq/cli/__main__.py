"""`python -m bucketmq.cli` is the same as `bucketmq`."""

from bucketmq.cli import main

main()
