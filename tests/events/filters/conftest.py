"""How Hypothesis runs here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast an example runs on a busy machine says nothing about the code.
settings.register_profile("bucketmq", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bucketmq")
