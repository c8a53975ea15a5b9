"""Working: the two loops, a worker and the keeper of leases and settlements."""
