"""Messages for people about one object: Slack, PagerDuty, and plain JSON for programs that have people behind them.

`rules.webhook` asks for these where a rule's format is one of them, and hands over the object's content, which
they show. What an object says may come from anybody, so nothing of it is markup here: no mention, no link, no way out
of a code block. Shown are the fields `id`, `text`, `media_url`, `categories` and `confidence` of its JSON, where there
are such; of an alert also `summary`, `severity`, `link`, and `dedup_key` and `state`, which make it an incident that is
triggered and resolved.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from typing import Any, assert_never

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent
from bucketmq.events.rule import Notice

SECTION_UNITS_MAX = 2_900
FIELD_UNITS_MAX = 1_900
"""Slack allows 3,000 and 2,000 characters, and throws away a whole message for one more."""
NAME_UNITS_MAX = 200
SUMMARY_UNITS_MAX = 1_000
DETAIL_UNITS_MAX = 8_000
"""PagerDuty's summary has at most 1,024 characters; what goes beside it should stay readable."""

SEVERITIES = ("critical", "error", "warning", "info")

GONE = "(not there any more, or not to be read)"
CUT = "…"

_BACKTICK = "\N{MODIFIER LETTER GRAVE ACCENT}"
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def encode(format: Notice, event: ObjectEvent, content: object, *, routing_key: str | None = None) -> bytes:
    """The body of a request that tells people of an object. `content` is its JSON, or None if there is none."""
    match format:
        case "slack":
            return msgspec.json.encode(slack(event, content))
        case "json":
            return msgspec.json.encode({"event": event, "content": content})
        case "pagerduty":
            if not routing_key:
                raise Invalid("PagerDuty needs the routing key of an integration; give it as the rule's bearer secret")
            return msgspec.json.encode(pagerduty(event, content, routing_key))
        case _:
            assert_never(format)


def slack(event: ObjectEvent, content: object) -> dict[str, Any]:
    """Block Kit, as incoming webhooks take it."""
    shown = _Shown(event, content)
    confidence = "" if shown.confidence is None else f" (confidence {shown.confidence:.2f})"
    title = f":rotating_light: {_word(shown.folder)} content {code(shown.id, NAME_UNITS_MAX)}"
    if shown.summary:
        mark = ":white_check_mark: Resolved" if shown.resolved else ":rotating_light: Alert"
        title = f"{mark} {code(shown.summary, NAME_UNITS_MAX)}"
    fields = {
        "ID": code(shown.id, NAME_UNITS_MAX),
        "Confidence": "" if shown.confidence is None else f"{shown.confidence:.2f}",
        "Categories": code(shown.categories, FIELD_UNITS_MAX) if shown.categories else "",
        "Media": code(shown.media_url, FIELD_UNITS_MAX) if shown.media_url else "",
        "Runbook": code(shown.link, FIELD_UNITS_MAX) if shown.link else "",
        "Object": code(event.key, FIELD_UNITS_MAX),
    }
    return {
        "text": title + confidence,
        "blocks": [
            _section(text=_mrkdwn(title + confidence)),
            _section(fields=[_mrkdwn(f"*{name}:*\n{value}") for name, value in fields.items() if value]),
            _section(text=_mrkdwn(f"*Content:*\n```{escaped(shown.text, SECTION_UNITS_MAX)}```")),
        ],
    }


def _word(folder: str) -> str:
    """A folder's name for the title, which is not in a code block: plain words only."""
    return folder.capitalize() if folder.isascii() and folder.replace("-", "").isalpha() else "Object's"


def _section(**parts: Any) -> dict[str, Any]:
    return {"type": "section", **parts}


def _mrkdwn(text: str) -> dict[str, Any]:
    # Verbatim: what looks like a link, a channel or a mention is not made one.
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def code(text: str, units_max: int) -> str:
    """A text in backticks, on one line, where Slack takes nothing in it for markup."""
    return f"`{escaped(' '.join(text.split()) or ' ', units_max)}`"


def escaped(text: str, units_max: int) -> str:
    """A text that is nothing but text in Slack's markup, cut between characters so that it fits when escaped."""
    return _fitting((_escaped(each) for each in text), units_max)


def _escaped(character: str) -> str:
    if character == "`":
        return _BACKTICK
    return _ENTITIES.get(character, plain(character))


def plain(character: str) -> str:
    """The character, unless it acts on others instead of being seen: controls, and what turns the direction."""
    if character in "\n\t":
        return character
    acts = character in _TURNING or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    return "\N{REPLACEMENT CHARACTER}" if acts else character


def _fitting(pieces: Any, units_max: int) -> str:
    """The pieces up to a length in UTF-16 units, which is how the other side counts, at the latest."""
    kept: list[str] = []
    units = 0
    for piece in pieces:
        size = sum(2 if ord(each) > 0xFFFF else 1 for each in piece)
        if units + size > units_max - len(CUT):
            return "".join(kept) + CUT
        kept.append(piece)
        units += size
    return "".join(kept)


def pagerduty(event: ObjectEvent, content: object, routing_key: str) -> dict[str, Any]:
    """An event of the Events API v2. One incident for each revision of an object, however often it is told; or for each
    `dedup_key`, which is resolved when an object with it says so."""
    shown = _Shown(event, content)
    mark = hashlib.sha256(
        (shown.dedup_key or f"{event.key}\0{shown.revision}").encode("utf-8", "surrogatepass")
    ).hexdigest()
    confidence = "" if shown.confidence is None else f" (confidence {shown.confidence:.2f})"
    details = {
        "id": shown.id,
        "object": event.key,
        "categories": shown.categories,
        "media_url": shown.media_url,
        "text": shown.text,
    }
    return {
        "routing_key": routing_key,
        "event_action": "resolve" if shown.resolved else "trigger",
        "dedup_key": f"bucketmq-{mark[:32]}",
        **({"links": [{"href": _clean(shown.link, DETAIL_UNITS_MAX), "text": "Runbook"}]} if shown.link else {}),
        "payload": {
            "summary": _clean(
                shown.summary or f"{shown.folder} {shown.id}{confidence}: {shown.categories}", SUMMARY_UNITS_MAX
            ),
            "source": _clean(event.bucket or "bucketmq", NAME_UNITS_MAX),
            "severity": shown.severity,
            "timestamp": event.at,
            "component": _clean(event.key, NAME_UNITS_MAX),
            "custom_details": {name: _clean(text, DETAIL_UNITS_MAX) for name, text in details.items() if text},
        },
    }


def _clean(text: str, units_max: int) -> str:
    return _fitting((plain(each) for each in text), units_max)


class _Shown:
    """What is shown of an object."""

    def __init__(self, event: ObjectEvent, content: object) -> None:
        fields: dict[str, Any] = content if isinstance(content, dict) else {}
        folder, _, name = event.key.rpartition("/")
        self.folder = folder.split("/", 1)[0] or "object"
        self.id = _text(fields.get("id")) or name
        self.media_url = _text(fields.get("media_url"))
        self.revision = fields.get("revision", "")
        confidence = fields.get("confidence")
        self.confidence = float(confidence) if confidence is not None and _is_number(confidence) else None
        self.categories = ", ".join(_categories(fields.get("categories")))
        self.summary = _text(fields.get("summary"))
        self.dedup_key = _text(fields.get("dedup_key"))
        self.resolved = bool(self.dedup_key) and fields.get("state") == "resolved"
        link = _text(fields.get("link"))
        self.link = link if link.startswith(("https://", "http://")) else ""
        severity = _text(fields.get("severity"))
        self.severity = severity if severity in SEVERITIES else "warning"
        text = _text(fields.get("text"))
        self.text = text or (GONE if content is None else msgspec.json.encode(content).decode())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_number(value: object) -> bool:
    """Whether it can be shown as one. JSON has whole numbers that are too large to be a float."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _categories(value: object) -> list[str]:
    """The names of those that are flagged, or of all if none is, the most probable first."""
    listed = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    named = [each for each in listed if _text(each.get("name")) and _is_number(each.get("confidence"))]
    chosen = [each for each in named if each.get("flagged") is True] or named
    chosen.sort(key=lambda each: -float(each["confidence"]))
    return [f"{each['name']} ({float(each['confidence']):.2f})" for each in chosen]
