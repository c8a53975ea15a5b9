"""The texts of the sets as rows: the pieces that a classifier judges, and the windows that labels are about.

Features that a fold could learn from (labels, coefficients) are not here: what is here is the same for all folds.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bucketmq.apps.moderation.classify.links import links
from bucketmq.apps.moderation.classify.ngrams import BUCKETS, grams
from bucketmq.apps.moderation.classify.normalise import plain
from bucketmq.apps.moderation.classify.pieces import CHARS_MAX, pieces, spans
from training.moderation import data

FOLDS = 5
SEED = 20
WINDOW_CHARS = 800
"""A label is about a whole text, not about a span of it: labels are fitted by windows, as long as the encoder reads."""
PART_CHARS = 160
LONG_CHARS = 240
"""What version 1 called long, and cut into spans of that length."""
WEIGHTS = {"openai": 2.0, "hatecheck": 1.0, "surge": 2.0, "sms": 0.7, "davidson": 0.5, "seeds": 3.0}
"""What one text of each set counts: the large sets are of one kind each and must not drown the small ones."""
TWEETS = {"hate_speech": 1.0, "offensive_language": 0.12, "neither": 0.4}
"""Which share of the tweets is used: most of them are offensive in the same few ways."""


class Features(msgspec.Struct, frozen=True):
    """What is known of texts before anything is fitted: the text, its n-grams, its words, its surface."""

    texts: list[str]
    grams: sparse.csr_matrix
    words: NDArray[np.uint64]
    word_starts: NDArray[np.int64]
    surface: NDArray[np.float32]


class Rows:
    """All pieces and all windows of all examples. Those of one example share its number (`owner`)."""

    def __init__(self, examples: list[data.Example]) -> None:
        texts: list[str] = []
        owner, share, judged, part, earlier, surfaces = [], [], [], [], [], []
        for number, example in enumerate(examples):
            cut = pieces(example.text)
            windows, parts, were = [cut.texts[0]], list(cut.texts), list(cut.texts)
            if len(cut.texts) > 1:
                whole = plain(links(example.text[:CHARS_MAX]).text).text
                windows, parts = spans(whole, WINDOW_CHARS), spans(whole, PART_CHARS)
                were = [*windows, *spans(whole, LONG_CHARS)]
            for text in dict.fromkeys([*windows, *cut.texts, *parts, *were]):
                texts.append(text)
                owner.append(number)
                share.append(1 / len(windows) if text in windows else 0.0)
                judged.append(text in cut.texts)
                part.append(text in parts)
                earlier.append(text in were)
                surfaces.append(cut.surface)
        self.examples = examples
        self.owner = np.array(owner)
        self.share = np.array(share)
        """What a row counts for when labels are fitted: windows share the weight of their text, spans have none."""
        self.judged = np.array(judged)
        """Whether the classifier judges it: pieces, not the windows of long texts."""
        self.part = np.array(part)
        """Whether the first stage learns the second one's opinion of it: parts of `PART_CHARS`."""
        self.earlier = np.array(earlier)
        """Whether version 1 judged it: windows, and spans of `LONG_CHARS`."""
        self.labels = np.array([example.labels for example in examples])
        self.base = np.array([WEIGHTS[example.source] for example in examples])
        self.sources = [example.source for example in examples]
        self.everyday = np.array([(example.source, example.kind) in data.EVERYDAY for example in examples])
        self.long_good = np.array(
            [len(e.text) > LONG_CHARS and all(label == 0 for label in e.labels) for e in examples]
        )
        self.features = features(texts, np.array(surfaces, dtype=np.float32))

    @property
    def texts(self) -> list[str]:
        return self.features.texts

    def worst(self, scores: np.ndarray, judged: np.ndarray | None = None) -> np.ndarray:
        """Scores of pieces to scores of examples; of those `judged` only."""
        chosen = self.judged if judged is None else judged
        worst = np.full((len(self.examples), scores.shape[1]), -np.inf)
        np.maximum.at(worst, self.owner[chosen], scores[chosen])
        return worst


def features(texts: list[str], surfaces: np.ndarray) -> Features:
    found = [grams(texts[at : at + 1000]) for at in range(0, len(texts), 1000)]
    counted = [
        sparse.csr_matrix((np.ones(len(g.buckets), np.float32), g.buckets, g.starts), (len(g.starts) - 1, BUCKETS))
        for g in found
    ]
    lengths = np.concatenate([np.diff(g.word_starts) for g in found])
    return Features(
        texts,
        sparse.vstack(counted).tocsr(),
        np.concatenate([g.words for g in found]),
        np.concatenate([[0], np.cumsum(lengths)]),
        surfaces,
    )


def chosen(folder: Path) -> tuple[list[data.Example], list[data.Example]]:
    """The sets, with a share of the tweets, and our own sentences; and the tweets that were left out."""
    chance = np.random.default_rng(SEED)
    used: list[data.Example] = []
    unused: list[data.Example] = []
    for example in [*data.read(folder), *data.seeds()]:
        take = example.source != "davidson" or chance.random() < TWEETS[example.kind]
        (used if take else unused).append(example)
    return used, unused


def folds_of(groups: list[int], *, seed: int = SEED) -> np.ndarray:
    """A fold for each example; one group, one fold."""
    chance = np.random.default_rng(seed)
    of_group = dict(zip(sorted(set(groups)), chance.integers(0, FOLDS, len(set(groups))), strict=True))
    return np.array([of_group[group] for group in groups])
