"""Points in time as texts that compare as the times do.

Events tell time with six digits after the point and in UTC, so without their `Z` two of them compare as texts. A time
in a filter is brought to the same form; it may have more digits than six, and then is longer, which compares rightly
too.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,30}))?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)
_EVENT_CHARS = len("2026-01-31T23:59:59.123456Z")


def comparable(text: str) -> str | None:
    """A date or an RFC 3339 time, ready to be compared; None for anything else. A date is its midnight in UTC."""
    if _DATE.match(text):
        text += "T00:00:00Z"
    found = _TIME.match(text)
    if found is None:
        return None
    date, clock, fraction, zone = found.groups()
    try:
        offset = "+00:00" if zone in "Zz" else zone
        whole = datetime.fromisoformat(f"{date}T{clock}{offset}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    digits = (fraction or "").rstrip("0").ljust(6, "0")
    # Not strftime, which leaves out the zeros of early years on some systems.
    return f"{whole.replace(tzinfo=None).isoformat()}.{digits}"


def of_event(at: str) -> str | None:
    """The time of an event, ready to be compared. Quick for the form that every event of ours has."""
    return at[:-1] if len(at) == _EVENT_CHARS and at[-1] == "Z" else comparable(at)
