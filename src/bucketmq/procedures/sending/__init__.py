"""Sending: plain, once per key, delayed, to one subscription, to the dead letters and back; raising the shard count."""
