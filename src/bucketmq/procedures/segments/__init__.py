"""Segments: the log of one shard. Finding its end, putting a segment there once, reading messages out of it."""
