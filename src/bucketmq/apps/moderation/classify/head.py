"""The trained part of the embedded model: coefficients from the package, and how they turn features into probabilities.

Two stages. The first looks at n-grams and at the surface of a text. The second adds a sentence embedding and the first
one's opinion. Either ends in probabilities, calibrated on texts the coefficients had not seen. What the features are is
said by `ngrams`, `surface` and `encoder`; what a probability leads to, by `embedded`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from bucketmq.apps.moderation.classify.ngrams import BUCKETS, Grams, grams
from bucketmq.apps.moderation.record import CATEGORIES
from bucketmq.errors import Corrupt

Floats = NDArray[np.float32]

COEFFICIENTS = Path(__file__).with_name("embedded.safetensors")
CARD = Path(__file__).with_name("embedded.json")
FORMAT = 1


class Band(msgspec.Struct, frozen=True):
    """Below `clear` a post is fine, from `flag` on it is not, and between a person decides."""

    clear: float
    flag: float


class Stage(msgspec.Struct, frozen=True):
    """How scores of one stage become probabilities: a slope and an offset for each category."""

    slope: tuple[float, ...]
    offset: tuple[float, ...]
    bands: dict[str, Band]


class Card(msgspec.Struct, frozen=True):
    """What belongs to the coefficients, as JSON beside them."""

    format: int
    version: str
    words: Stage
    sentences: Stage
    settled: float
    """The first stage decides alone if all of its probabilities are below this, which is below all of its bands."""


class Head:
    """Features to probabilities. Immutable, so any thread may use it."""

    def __init__(self, coefficients: dict[str, NDArray[Any]], card: Card) -> None:
        self.card = card
        self._idf = coefficients["idf"].astype(np.float32) / 16
        self._grams = coefficients["grams"]
        self._grams_scale = coefficients["grams_scale"].astype(np.float32)
        self._surface = coefficients["surface"].astype(np.float32)
        self._bias = coefficients["bias"].astype(np.float32)
        self._sentence = coefficients["sentence"].astype(np.float32)
        self._sentence_mean = coefficients["sentence_mean"].astype(np.float32)
        self._stack = coefficients["stack"].astype(np.float32)
        self._sentence_bias = coefficients["sentence_bias"].astype(np.float32)

    @classmethod
    def load(cls, coefficients: Path = COEFFICIENTS, card: Path = CARD) -> Head:
        """Reads the coefficients. Nothing in the files is ever executed."""
        try:
            held = load_tensors(coefficients.read_bytes())
            decoded = msgspec.json.decode(card.read_bytes(), type=Card)
        except (OSError, SafetensorError, msgspec.DecodeError) as error:
            raise Corrupt(f"cannot read the embedded model {coefficients}: {error}; reinstall bucketmq") from error
        if decoded.format != FORMAT or held["grams"].shape != (BUCKETS, len(CATEGORIES)):
            raise Corrupt(f"{coefficients} is not of the format this version reads; reinstall bucketmq")
        return cls(held, decoded)

    def score_words(self, found: Grams, surfaces: Floats) -> Floats:
        """The first stage's scores, one row for each text."""
        weights = self._idf[found.buckets]
        counts = np.diff(found.starts)
        rows = np.repeat(np.arange(len(counts)), counts)
        norms = np.sqrt(np.bincount(rows, weights * weights, len(counts)))
        scores = np.empty((len(counts), len(CATEGORIES)), dtype=np.float32)
        for column in range(len(CATEGORIES)):
            products = weights * self._grams[found.buckets, column]
            scores[:, column] = np.bincount(rows, products, len(counts)) / np.maximum(norms, 1e-6)
        return (scores * self._grams_scale + surfaces @ self._surface + self._bias).astype(np.float32)

    def score_sentences(self, vectors: Floats, word_scores: Floats, surfaces: Floats) -> Floats:
        """The second stage's scores."""
        centred = vectors - self._sentence_mean
        features = np.concatenate([np.clip(word_scores, -8, 8), surfaces], axis=1)
        return (centred @ self._sentence + features @ self._stack + self._sentence_bias).astype(np.float32)

    def probabilities(self, stage: Stage, scores: Floats) -> Floats:
        """What the scores mean."""
        raw = scores * np.asarray(stage.slope, np.float32) + np.asarray(stage.offset, np.float32)
        return (1 / (1 + np.exp(-np.clip(raw, -30, 30)))).astype(np.float32)

    def telling(self, words: list[str], category: int) -> list[tuple[str, float]]:
        """How much each word speaks for a category, the most telling first."""
        found = grams(words)
        products = self._idf[found.buckets] * self._grams[found.buckets, category]
        totals = np.add.reduceat(np.append(products, 0), found.starts[:-1]) * self._grams_scale[category]
        return sorted(zip(words, totals.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
