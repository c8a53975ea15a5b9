"""Two classifiers in turn: a quick one for all posts, a better one for those about which the first is not sure.

A post is settled by the first if it has no doubt. What it doubts, the second judges, and the two must lean the same
way: if one sees a violation and the other none, a person decides. Where the first has no opinion at all, the second may
flag but not approve, unless it is allowed to. A post that speaks to its judge is never approved on the word of
the second, because that is a model which reads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Literal, Self

import msgspec

from bucketmq.apps.moderation.classify import Classifier
from bucketmq.apps.moderation.classify.addressed import speaks_to_the_judge
from bucketmq.apps.moderation.record import CATEGORIES, Category, Post, Verdict
from bucketmq.errors import Invalid, Unavailable


class Counts(msgspec.Struct, frozen=True):
    """Who decided how many posts, since the cascade was made."""

    first: int = 0
    """Settled by the first alone."""
    second: int = 0
    """Settled by the second, the first leaning the same way."""
    alone: int = 0
    """Settled by the second where the first had no opinion."""
    disagreed: int = 0
    doubted: int = 0
    """The second had a doubt of its own, or the post spoke to its judge."""
    unavailable: int = 0
    """The second could not be asked."""


class Cascade:
    """The first classifier for all, the second for what the first doubts."""

    def __init__(
        self,
        first: Classifier,
        second: Classifier,
        *,
        when_unavailable: Literal["doubt", "raise"] = "doubt",
        second_alone: bool = False,
    ) -> None:
        """`when_unavailable`: whether posts for which the second cannot be asked go to a person, or the call is tried
        again later. `second_alone`: whether the second may approve what the first has no opinion about."""
        if when_unavailable not in ("doubt", "raise"):
            raise Invalid(f"when_unavailable must be doubt or raise, not {when_unavailable!r}")
        self._first = first
        self._second = second
        self._when_unavailable = when_unavailable
        self._second_alone = second_alone
        self._counts: dict[str, int] = dict.fromkeys(Counts.__struct_fields__, 0)
        self._lock = threading.Lock()

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        """One verdict for each post, in their order. The second sees those that the first doubts, in one call."""
        verdicts = self._first.classify(posts)
        open_ones = [at for at, verdict in enumerate(verdicts) if verdict.doubt is not None]
        self._count("first", len(posts) - len(open_ones))
        if not open_ones:
            return verdicts
        try:
            seconds = self._second.classify([posts[at] for at in open_ones])
        except Unavailable as error:
            if self._when_unavailable == "raise":
                raise
            self._count("unavailable", len(open_ones))
            for at in open_ones:
                verdicts[at] = _doubted(verdicts[at], f"{verdicts[at].doubt}; the second opinion is missing: {error}")
            return verdicts
        for at, second in zip(open_ones, seconds, strict=True):
            verdicts[at] = self._settle(posts[at], verdicts[at], second)
        return verdicts

    @property
    def counts(self) -> Counts:
        """Who decided how many posts."""
        with self._lock:
            return Counts(**self._counts)

    def close(self) -> None:
        """Close what the classifiers hold open."""
        for each in (self._first, self._second):
            if (close := getattr(each, "close", None)) is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _made, (self._first, self._second, self._when_unavailable, self._second_alone)

    def _settle(self, post: Post, first: Verdict, second: Verdict) -> Verdict:
        both = f"{first.model}, {second.model}"
        second = msgspec.structs.replace(second, model=both)
        if second.doubt is not None:
            self._count("doubted")
            return _doubted(_higher(first, second), second.doubt)
        if not second.violation and (why := speaks_to_the_judge(post)) is not None:
            self._count("doubted")
            return _doubted(_higher(first, second), why)
        if not first.categories:
            self._count("alone")
            if second.violation or self._second_alone:
                return second
            return _doubted(second, f"{first.doubt}; only {second.model} had an opinion")
        if first.violation != second.violation:
            self._count("disagreed")
            who = first.model if first.violation else "the second"
            return _doubted(_higher(first, second), f"{both} disagree: only {who} leans to a violation")
        self._count("second")
        return second

    def _count(self, what: str, by: int = 1) -> None:
        with self._lock:
            self._counts[what] += by


def _made(first: Classifier, second: Classifier, when: Literal["doubt", "raise"], second_alone: bool) -> Cascade:
    return Cascade(first, second, when_unavailable=when, second_alone=second_alone)


def _doubted(verdict: Verdict, why: str) -> Verdict:
    return msgspec.structs.replace(verdict, doubt=why)


def _higher(first: Verdict, second: Verdict) -> Verdict:
    """Both verdicts as one, the higher confidence for each category: for the person who reviews it."""
    return msgspec.structs.replace(
        second,
        categories=highest(first.categories, second.categories),
        rationale=" / ".join(each for each in (first.rationale, second.rationale) if each),
    )


def highest(*each: Sequence[Category]) -> tuple[Category, ...]:
    """For each category the most that any says of it; none if no verdict says anything."""
    found: dict[str, Category] = {}
    for category in (category for categories in each for category in categories):
        known = found.get(category.name)
        if known is None or (category.flagged, category.confidence) > (known.flagged, known.confidence):
            found[category.name] = category
    return tuple(found[name] for name in CATEGORIES if name in found)
