"""What demos share. Each belongs to what it shows: `bucketmq.cli.demo`, `bucketmq.apps.moderation.demo`."""
