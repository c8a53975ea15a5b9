"""Both stages fitted: the second to labels, the first to labels and to the second one's opinion.

```
second   linear over sentence embeddings and surface
first    linear over n-grams and surface, plus small networks over the mean of word vectors and surface
earlier  what was shipped until version 1: linear n-grams, and embeddings stacked on them; for comparison
```
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bucketmq.apps.moderation.classify.ngrams import BUCKETS
from bucketmq.apps.moderation.record import CATEGORIES
from training.moderation import fit
from training.moderation.rows import FOLDS, Features, Rows
from training.moderation.unlabelled import Unlabelled
from training.moderation.vectors import Words

Floats = NDArray[np.float32]

GRAMS_PENALTY, SURFACE_PENALTY, SENTENCE_PENALTY = 1.5e-6, 1e-4, 6.4e-2
BALANCE = 0.5
OPINION = 0.5
"""The second stage's share in what the first learns where a label is known; elsewhere there is nothing else."""
PART_WEIGHT = 0.3
"""What a text without a label counts, beside `rows.WEIGHTS`: spans of long texts and unlabelled ones."""
SHARPNESS = 2.5
"""How much more decided the second stage's opinion is made before the first learns it."""
SOFT_PENALTY, SOFT_ROUNDS = 5e-7, 40
"""For n-grams that are fitted to opinions: there are more texts, and opinions have less noise than labels."""
HIDDEN, DECAY, RATE, EPOCHS, NETWORK_SEEDS = 128, 1e-3, 1.5e-3, 15, (7, 8)
"""One network for each seed, and their average: chance moves one alone by as much as all other settings together."""
NETWORK_SHARE = 0.7
"""Their share in the first stage's score; the rest is the n-grams'."""


class Inputs(msgspec.Struct, frozen=True):
    """Texts as what the stages look at, scaled."""

    grams: sparse.csr_matrix
    words: Floats
    surface: Floats
    sentence: Floats

    def __getitem__(self, chosen: NDArray[np.bool_]) -> Inputs:
        return Inputs(self.grams[chosen], self.words[chosen], self.surface[chosen], self.sentence[chosen])

    @property
    def sparse(self) -> sparse.csr_matrix:
        """What a linear first stage looks at."""
        return sparse.hstack([self.grams, sparse.csr_matrix(self.surface)]).tocsr()

    @property
    def dense(self) -> Floats:
        """What the network looks at."""
        return np.concatenate([self.words, self.surface], axis=1)

    @property
    def sentences(self) -> Floats:
        """All that the second stage looks at."""
        return np.concatenate([self.sentence, self.surface], axis=1)

    @classmethod
    def joined(cls, one: Inputs, other: Inputs) -> Inputs:
        return cls(
            sparse.vstack([one.grams, other.grams]).tocsr(),
            np.concatenate([one.words, other.words]),
            np.concatenate([one.surface, other.surface]),
            np.concatenate([one.sentence, other.sentence]),
        )


class Scales(msgspec.Struct, frozen=True):
    """How features are weighted and scaled: the same for all folds, since no label has a part in it."""

    idf: NDArray[np.uint8]
    words: Words
    words_mean: Floats
    words_spread: np.float32
    sentence_mean: Floats
    sentence_spread: Floats

    @classmethod
    def of(cls, found: Features, vectors: Floats, words: Words) -> Scales:
        means = words.counted(found) @ words.vectors
        return cls(
            idf_of(found.grams),
            words,
            means.mean(axis=0),
            np.float32(np.sqrt(means.var(axis=0).mean())),
            vectors.mean(axis=0),
            np.maximum(vectors.std(axis=0), 0.05),
        )

    def inputs(self, found: Features, vectors: Floats) -> Inputs:
        weighted = found.grams @ sparse.diags(self.idf.astype(np.float32) / 16)
        norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
        scaled = sparse.diags((1 / np.maximum(norms, 1e-6)).astype(np.float32)) @ weighted
        words = (self.words.counted(found) @ self.words.vectors - self.words_mean) / self.words_spread
        sentence = (vectors - self.sentence_mean) / self.sentence_spread
        return Inputs(
            scaled.tocsr().astype(np.float32), words.astype(np.float32), found.surface, sentence.astype(np.float32)
        )


def idf_of(grams: sparse.csr_matrix) -> NDArray[np.uint8]:
    """How rare each n-gram is, in sixteenths; 0 if it occurs once only: that says nothing."""
    seen = np.asarray((grams > 0).sum(axis=0)).ravel()
    idf = np.where(seen >= 2, np.log((1 + grams.shape[0]) / (1 + seen)) + 1, 0.0)
    rounded: NDArray[np.uint8] = np.clip(np.rint(idf * 16), 0, 255).astype(np.uint8)
    return rounded


def to_labels(features: Any, rows: Rows, train: np.ndarray, penalty: float, *, width: int) -> fit.Fitted:
    """Coefficients from the windows among `train`; the first `width` features have this penalty, the rest another."""
    train = train & (rows.share > 0)
    labels = rows.labels[rows.owner][train]
    base = (rows.base[rows.owner] * rows.share)[train]
    penalties = np.full(features.shape[1], SURFACE_PENALTY)
    penalties[:width] = penalty
    weights = fit.weights_for(labels, base, balance=BALANCE)
    return fit.fit(features[train], labels, weights, penalty=penalties, rounds=50)


def second_stage(own: Inputs, rows: Rows, train: np.ndarray) -> fit.Fitted:
    return to_labels(own.sentences, rows, train, SENTENCE_PENALTY, width=own.sentence.shape[1])


class First(msgspec.Struct, frozen=True):
    """The first stage: the sum of a linear model over n-grams and surface, and a network over words and surface."""

    linear: fit.Fitted
    network: fit.Network

    def scores(self, own: Inputs) -> Floats:
        told = NETWORK_SHARE * self.network.scores(own.dense)
        found: Floats = told + (1 - NETWORK_SHARE) * self.linear.scores(own.sparse)
        return found


def first_stage(
    own: Inputs, rows: Rows, train: np.ndarray, *, others: Inputs, usable: np.ndarray, second: fit.Fitted
) -> First:
    """Fitted to the windows and spans among `train` and to the `usable` of the `others`, which have no labels."""
    train = train & (rows.part | (rows.share > 0))
    known, unknown = own[train], others[usable]
    labels = np.where(rows.share[train, None] > 0, rows.labels[rows.owner][train], np.nan)
    base = np.where(rows.share > 0, rows.base[rows.owner] * rows.share, PART_WEIGHT)[train]
    base = np.concatenate([base, np.full(usable.sum(), PART_WEIGHT)])
    said = np.concatenate([second.scores(known.sentences), second.scores(unknown.sentences)])
    labels = np.concatenate([labels, np.full((usable.sum(), len(CATEGORIES)), np.nan)])
    said = 1 / (1 + np.exp(-SHARPNESS * said))
    mixed = np.where(np.isnan(labels), said, OPINION * said + (1 - OPINION) * np.nan_to_num(labels))
    target, weights = fit.softly_weighted(mixed, base, balance=BALANCE)
    both = Inputs.joined(known, unknown)
    penalties = np.full(both.sparse.shape[1], SURFACE_PENALTY)
    penalties[:BUCKETS] = SOFT_PENALTY
    dense = both.dense
    networks = [
        fit.network(dense, target, weights, hidden=HIDDEN, decay=DECAY, rate=RATE, epochs=EPOCHS, seed=seed)
        for seed in NETWORK_SEEDS
    ]
    linear = fit.fit(both.sparse, target, weights, penalty=penalties, rounds=SOFT_ROUNDS)
    return First(linear, fit.Network.averaged(networks))


class Unseen(msgspec.Struct, frozen=True):
    """Scores of all rows, each by coefficients from the other folds."""

    first: Floats
    second: Floats


def judged_unseen(own: Inputs, rows: Rows, folds: np.ndarray, others: Inputs, extra: Unlabelled) -> Unseen:
    fold = folds[rows.owner]
    first, second = (np.zeros((len(fold), len(CATEGORIES)), dtype=np.float32) for _ in range(2))
    for k in range(FOLDS):
        left = fold == k
        better = second_stage(own, rows, ~left)
        second[left] = better.scores(own[left].sentences)
        quick = first_stage(own, rows, ~left, others=others, usable=extra.fold != k, second=better)
        first[left] = quick.scores(own[left])
    return Unseen(first, second)


def earlier_unseen(own: Inputs, rows: Rows, folds: np.ndarray) -> Unseen:
    """The same for the stages as they were in version 1."""
    first = _by_folds(own.sparse, rows, folds, GRAMS_PENALTY, width=BUCKETS)
    stacked = np.concatenate([own.sentence, np.clip(first, -8, 8), own.surface], axis=1)
    return Unseen(first, _by_folds(stacked, rows, folds, SENTENCE_PENALTY, width=own.sentence.shape[1]))


def _by_folds(features: Any, rows: Rows, folds: np.ndarray, penalty: float, *, width: int) -> Floats:
    fold = folds[rows.owner]
    scores = np.zeros((len(fold), len(CATEGORIES)), dtype=np.float32)
    for k in range(FOLDS):
        fitted = to_labels(features, rows, fold != k, penalty, width=width)
        scores[fold == k] = fitted.scores(features[fold == k])
    return scores
