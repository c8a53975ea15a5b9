"""Texts without labels, on which the first stage learns the second one's opinion.

Tweets that the training does not use, and texts made from the examples: some words dropped, a part, two joined. What is
made from an example belongs to its fold, and tweets that are near-copies of an example are left out, so that no fold
is judged by coefficients that saw it in disguise.
"""

from __future__ import annotations

import numpy as np

from bucketmq.apps.moderation.classify.links import links
from bucketmq.apps.moderation.classify.normalise import plain
from bucketmq.apps.moderation.classify.pieces import pieces, spans
from training.moderation import data
from training.moderation.rows import SEED, Features, features

ALL_FOLDS = -1
CHARS = 240
"""Of one text at most: about as long as two pieces, so that the first stage knows more than pieces."""
DROPPED, PART = 0.25, (0.3, 0.7)
TURNS = 5
"""How often one or two texts are made from each example: the network overfits with fewer."""


class Unlabelled:
    """Texts and the fold that each belongs to; `ALL_FOLDS` for those that no example is like."""

    def __init__(self, examples: list[data.Example], folds: np.ndarray, unused: list[data.Example]) -> None:
        both = data.groups([*examples, *unused])
        known = set(both[: len(examples)])
        fresh = [e.text for e, group in zip(unused, both[len(examples) :], strict=True) if group not in known]
        made = _made([example.text for example in examples], folds)
        every = [*fresh, *(text for text, _ in made)]
        self.fold = np.array([ALL_FOLDS] * len(fresh) + [fold for _, fold in made])
        self.features: Features = features(
            [spans(plain(links(text).text).text, CHARS)[0] for text in every],
            np.array([pieces(text).surface for text in every], dtype=np.float32),
        )
        self.fresh = self.features.texts[: len(fresh)]
        """Those that are no example, nor made from one."""


def _made(texts: list[str], folds: np.ndarray) -> list[tuple[str, int]]:
    """Texts made from `texts`, each once, with their fold."""
    of_fold = {int(fold): np.flatnonzero(folds == fold) for fold in np.unique(folds)}
    made: dict[tuple[str, int], None] = {}
    for turn in range(TURNS):
        chance = np.random.default_rng(SEED + turn)
        for text, fold in zip(texts, folds.tolist(), strict=True):
            words = text.split()[:60]
            if len(words) < 4:
                continue
            kept = [word for word in words if chance.random() >= DROPPED]
            size = max(2, round(len(words) * chance.uniform(*PART)))
            start = int(chance.integers(0, len(words) - size + 1))
            other = texts[int(chance.choice(of_fold[fold]))].split()[:30]
            kinds = (kept, words[start : start + size], [*words[:30], *other])
            for _ in range(1 + (chance.random() < 0.8)):
                made[" ".join(kinds[int(chance.integers(0, 3))]), fold] = None
    return list(made)
