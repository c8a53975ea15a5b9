"""What moderation is about: posts, verdicts on them, and the records that lie in the bucket. Pure values.

How a record is decided upon is `routing`; how a post is judged is `classify`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA = 1

CATEGORIES = ("hate_speech", "spam", "nsfw", "harassment", "violence", "self_harm")
"""What a post may be, in the order in which records list it."""

PENDING: Final = "pending/"
APPROVED: Final = "approved/"
FLAGGED: Final = "flagged/"
NEEDS_REVIEW: Final = "needs-review/"
Outcome = Literal["approved/", "flagged/", "needs-review/"]
OUTCOMES: tuple[Outcome, ...] = (APPROVED, FLAGGED, NEEDS_REVIEW)
"""Every accepted post ends below exactly one of these."""

REVIEWED = "reviewed/"
"""What people decided: one object for each decision about a post."""


class Post(msgspec.Struct, frozen=True):
    """What was submitted."""

    id: str
    text: str
    media_url: str | None = None
    revision: int = 1
    """Grows by one whenever another text or image is submitted under the same id."""


class Category(msgspec.Struct, frozen=True):
    """How sure a classifier is that a post belongs to a category: `confidence` is a probability, 0 to 1."""

    name: str
    flagged: bool
    confidence: float


class Verdict(msgspec.Struct, frozen=True):
    """What a classifier says of one post."""

    categories: tuple[Category, ...]
    """All of `CATEGORIES`, in their order; empty only if there is a doubt."""
    model: str
    """Which model in which version, such as `embedded-1` or `claude-sonnet-4-5`."""
    rationale: str = ""
    """Why, in a sentence for the person who reviews it."""
    prompt: str | None = None
    """The version of the prompt, where there is one."""
    doubt: str | None = None
    """Why a person must look, whatever the categories say: the classifier failed, was not sure, or others disagreed."""
    attempts: int = 1
    """How often a model was asked about the post until it said this, or nothing."""

    @property
    def violation(self) -> bool:
        return any(each.flagged for each in self.categories)

    @property
    def confidence(self) -> float:
        """The highest of the flagged categories, or of all if none is flagged."""
        flagged = [each.confidence for each in self.categories if each.flagged]
        return max(flagged or [each.confidence for each in self.categories], default=0.0)


def in_doubt(model: str, why: str) -> Verdict:
    """The verdict of a classifier that has none: a person decides."""
    return Verdict((), model, doubt=why)


class Record(msgspec.Struct, frozen=True, omit_defaults=False):
    """`pending/<id>.json`, and later below one of the outcomes. A superset of what the public demo writes."""

    id: str
    text: str
    media_url: str | None
    categories: tuple[Category, ...]
    violation: bool
    confidence: float
    created_at: str
    """When the post was accepted, RFC 3339 in UTC."""
    schema: int = SCHEMA
    model: str = ""
    prompt: str | None = None
    rationale: str = ""
    doubt: str | None = None
    attempts: int = 1
    """How often a model was asked about the post: more than once if it did not answer at first."""
    revision: int = 1


def record_of(post: Post, verdict: Verdict, *, created_at: str) -> Record:
    """The record of a post that was judged."""
    return Record(
        id=post.id,
        text=post.text,
        media_url=post.media_url,
        categories=verdict.categories,
        violation=verdict.violation,
        confidence=round(verdict.confidence, 4),
        created_at=created_at,
        model=verdict.model,
        prompt=verdict.prompt,
        rationale=verdict.rationale,
        doubt=verdict.doubt,
        attempts=verdict.attempts,
        revision=post.revision,
    )
