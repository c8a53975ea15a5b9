"""A queue's log and archive as tables."""
