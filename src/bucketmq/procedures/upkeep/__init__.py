"""Upkeep: figures of a queue, its subscriptions and readers, trimming, the archive's register, damage."""
