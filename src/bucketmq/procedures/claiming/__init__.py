"""Claiming: leases on messages, receipts, bodies, looking without claiming."""
