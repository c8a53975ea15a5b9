"""What the application `logs` calls its objects, queues and tables."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from bucketmq.errors import Invalid

LOGS = "logs/"
"""`logs/{service}/{date}/...`: what is read."""
TEMPLATES = "templates/"
OPEN, RESOLVED, MUTED = "alerts/open/", "alerts/resolved/", "alerts/muted/"
HUSHED = "alerts/hushed/"
"""That an alert was muted, for those who were notified. Written once for an incident, so that nothing hides it."""
SAID = "alerts/said/"
"""What Claude said of an incident: beside the alert, which must not change before it was told."""
MUTES = "alerts/mutes.json"
ENDED = "alerts/ended/"
"""When new patterns of a service ended."""
SERVICES = "log-services/"

COUNTS = "log-counts"
"""The table, and the pipeline that fills it."""
WATCH = "log-watch"
"""The pipeline with the detectors."""
WINDOWS, NEWS, AUDIT = "log-windows", "log-news", "log-audit"
"""Queues: what an object came to; what was learnt and found; who muted what."""

RULE = "logs-alerts"
"""The rule that tells people."""


def service_of(key: str) -> str:
    """The service that an object is of; `Invalid` if its key does not say."""
    service, slash, _ = key.removeprefix(LOGS).partition("/")
    if not key.startswith(LOGS) or not slash or not service:
        raise Invalid(f"{key!r} does not say of which service it is; logs lie below logs/SERVICE/DATE/")
    return service


def file_of(service: str) -> str:
    """A service's name as it may stand in a key."""
    name = quote(service, safe="-_.~")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def templates_key(service: str) -> str:
    return f"{TEMPLATES}{file_of(service)}.json"


def ends_key(service: str) -> str:
    return f"{ENDED}{file_of(service)}.json"


def fingerprint(service: str, kind: str, template: str) -> str:
    """What makes an incident the same one, however often it is found."""
    return hashlib.sha256(f"{service}\0{kind}\0{template}".encode("utf-8", "surrogatepass")).hexdigest()[:20]
