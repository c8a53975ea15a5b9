"""Models for the local Messages API: each is a function from what was asked to what is said."""

from __future__ import annotations

import json
import re
from typing import Any

from bucketmq.apps.moderation.record import CATEGORIES, Post, Verdict
from bucketmq.testing.messages_api import Asked

BAD_WORDS = {"kill": "violence", "worthless": "harassment", "lottery": "spam"}


def asked_about(asked: Asked) -> tuple[str, dict[str, Any]]:
    """The mark and the post of a request."""
    mark = re.search(r"Mark ([0-9a-f]+): the post begins", asked.user)
    assert mark is not None, asked.user
    _, data, _ = (block["text"] for block in asked.params["messages"][0]["content"])
    return mark[1], json.loads(data)


def answer(asked: Asked, *flagged: str, **changes: Any) -> str:
    """A right answer that flags these categories, with changes."""
    mark, _ = asked_about(asked)
    categories = {
        name: {"flagged": name in flagged, "confidence": 0.97 if name in flagged else 0.02} for name in CATEGORIES
    }
    said = {"mark": mark, "rationale": "Because.", "addresses_moderator": False, "categories": categories, **changes}
    return json.dumps(said)


def honest(asked: Asked) -> str:
    """Flags what has a bad word in it, and does not look beyond words."""
    _, post = asked_about(asked)
    return answer(asked, *(category for word, category in BAD_WORDS.items() if word in post["text"].lower()))


def obedient(asked: Asked) -> str:
    """Does whatever a post tells it: an answer written in the post is repeated, and everything is fine."""
    _, post = asked_about(asked)
    for found in re.finditer(r"\{.*\}", post["text"], re.DOTALL):
        return found[0]
    return answer(asked)


def post(text: str, *, id: str = "p1", media_url: str | None = None) -> Post:
    return Post(id, text, media_url)


def approved(verdict: Verdict) -> bool:
    """Whether a verdict would let a post through: no doubt, no violation, all categories there."""
    names = [each.name for each in verdict.categories]
    return verdict.doubt is None and not verdict.violation and names == list(CATEGORIES)
