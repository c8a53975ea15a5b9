"""Classifiers: texts in, verdicts out. One interface for the embedded model, Claude, both in turn, and images.

A classifier answers with exactly one verdict for each post, in their order. It does not raise because of a post: what
it cannot judge gets a verdict with a doubt. It raises `Unavailable` when it can judge nothing now and trying again
later may help. It is made once in a process (models load then), holds no lock over a call, and may be called from any
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bucketmq.apps.moderation.record import Post, Verdict


class Classifier(Protocol):
    """Judges posts, many at a time."""

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        """One verdict for each post, in their order."""
        ...
