"""Heads: where a subscription stands in a shard. Conditional commits, and how workers avoid collisions."""
