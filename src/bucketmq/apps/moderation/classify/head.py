"""The trained part of the embedded model: coefficients from the package, and how they turn features into probabilities.

Two stages. The first looks at the n-grams, the words and the surface of a text: a linear model over n-grams, plus one
small hidden layer over the mean of its words' vectors and the surface. It was fitted to the second one's opinion as
much as to labels. The second looks at a sentence embedding, and its score is mixed with the first one's. Either ends in
probabilities, calibrated on texts the coefficients had not seen. What the features are is said by `ngrams`, `surface`
and `encoder`; what a probability leads to, by `embedded`.
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
FORMAT = 2
_AS_THEY_ARE = ("grams", "words", "inner")
"""Large, so they stay integers."""


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
    """The first stage alone."""
    sentences: Stage
    """Both stages together."""
    mix: float
    """The second stage's share in the score of a piece that it saw; the rest is the first one's."""
    low: float
    """A piece of which the first stage says less than this share of every category's `clear` needs no second look."""
    high: float
    """Nor do those of a post that has a piece at least this bad."""


class Head:
    """Features to probabilities. Immutable, so any thread may use it."""

    def __init__(self, coefficients: dict[str, NDArray[Any]], card: Card) -> None:
        self.card = card
        exact = {name: held.astype(np.float32) for name, held in coefficients.items() if name not in _AS_THEY_ARE}
        self._idf: Floats = exact["idf"] / np.float32(16)
        self._grams = coefficients["grams"]
        self._grams_scale = exact["grams_scale"]
        self._surface = exact["surface"]
        self._bias = exact["bias"]
        self._words = coefficients["words"]
        self._inner = coefficients["inner"]
        self._inner_scale = exact["inner_scale"]
        self._inner_surface = exact["inner_surface"]
        self._inner_bias = exact["inner_bias"]
        self._outer = exact["outer"]
        self._sentence = exact["sentence"]
        self._sentence_surface = exact["sentence_surface"]
        self._sentence_bias = exact["sentence_bias"]

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
        products = weights[:, None] * self._grams[found.buckets]
        norms = np.sqrt(_sums(weights * weights, found.starts))
        linear = _sums(products, found.starts) / np.maximum(norms, 1e-6)[:, None] * self._grams_scale
        hidden = np.maximum(self._mean_of_words(found) + surfaces @ self._inner_surface + self._inner_bias, 0)
        scores: Floats = linear + surfaces @ self._surface + hidden @ self._outer + self._bias
        return scores

    def _mean_of_words(self, found: Grams) -> Floats:
        """What the words of each text that are known add to the hidden units, on average."""
        at = np.minimum(np.searchsorted(self._words, found.words), len(self._words) - 1)
        known = self._words[at] == found.words
        at = at[known]
        starts = np.append(0, np.cumsum(known))[found.word_starts]
        sums = _sums(self._inner[at].astype(np.float32) * self._inner_scale[at, None], starts)
        mean: Floats = sums / np.maximum(np.diff(starts), 1).astype(np.float32)[:, None]
        return mean

    def score_sentences(self, vectors: Floats, word_scores: Floats, surfaces: Floats) -> Floats:
        """The scores of both stages together, of texts of which the first one's are known."""
        scores = vectors @ self._sentence + surfaces @ self._sentence_surface + self._sentence_bias
        mixed: Floats = self.card.mix * scores + (1 - self.card.mix) * word_scores
        return mixed

    def probabilities(self, stage: Stage, scores: Floats) -> Floats:
        """What the scores mean."""
        raw = scores * np.asarray(stage.slope, np.float32) + np.asarray(stage.offset, np.float32)
        return (1 / (1 + np.exp(-np.clip(raw, -30, 30)))).astype(np.float32)

    def telling(self, words: list[str], category: int) -> list[tuple[str, float]]:
        """How much each word speaks for a category, the most telling first."""
        found = grams(words)
        products = self._idf[found.buckets] * self._grams[found.buckets, category]
        totals = _sums(products, found.starts) * self._grams_scale[category]
        return sorted(zip(words, totals.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))


def _sums(values: Floats, starts: NDArray[np.int64]) -> Floats:
    """The sum of `values[starts[i] : starts[i + 1]]` for each i; 0 where there is nothing."""
    padded = np.concatenate([values, np.zeros((1, *values.shape[1:]), dtype=values.dtype)])
    sums: Floats = np.add.reduceat(padded, starts[:-1], axis=0)
    sums[starts[1:] == starts[:-1]] = 0
    return sums
