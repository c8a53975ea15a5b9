"""`python -m training.moderation --data DIR`: trains the embedded model and prints what it is worth.

Reads the five public sets and our own sentences, judges by five-fold cross-validation over groups (so every figure is
about texts that were not trained on), calibrates on those, and writes `embedded.safetensors` and `embedded.json`. The
encoder's graph stays as it is (`training.moderation.graph` writes it). Version 1 is fitted as well, for comparison.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import numpy as np
from safetensors.numpy import save

from bucketmq.apps.moderation.classify import head
from bucketmq.apps.moderation.classify.embedded import look_again
from bucketmq.apps.moderation.classify.ngrams import BUCKETS
from bucketmq.apps.moderation.record import CATEGORIES
from training.moderation import data, fit, measure, stages, vectors
from training.moderation.rows import Rows, chosen, folds_of
from training.moderation.unlabelled import Unlabelled

VERSION = "3"
MIX, LOW, HIGH = 0.7, 0.25, 0.99
CHOSEN_ON = (1, 2)
"""The folds on which settings were chosen; what they are worth on the others alone is printed as well."""
MISS = 2.0
"""Probabilities are for a stream with so many times as many bad posts as the sets: a miss costs more than a look."""
MOST = head.Band(clear=0.3, flag=0.85)
"""The router's own thresholds: bands may be stricter, never laxer."""


class Line(msgspec.Struct, frozen=True):
    """One way to judge: probabilities of texts, the bands they are held against, and what the first stage settled."""

    name: str
    found: np.ndarray
    bands: dict[str, head.Band]
    alone: np.ndarray | None = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.moderation", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the five sets")
    parser.add_argument("--cache", type=Path, default=None, help="folder that keeps embeddings between runs")
    parser.add_argument("--dry", action="store_true", help="measure only, write nothing")
    options = parser.parse_args()

    examples, unused = chosen(options.data)
    rows = Rows(examples)
    folds = folds_of(data.groups(examples))
    extra = Unlabelled(examples, folds, unused)
    print(f"{len(examples)} texts in {len(rows.texts)} pieces and windows, {len(extra.fold)} texts without labels")
    words = vectors.words([*rows.texts, *extra.fresh])
    embedded = vectors.embeddings([*rows.texts, *extra.features.texts], options.cache)
    embeddings, others_embeddings = np.split(embedded, [len(rows.texts)])
    scales = stages.Scales.of(rows.features, embeddings, words)
    own, others = scales.inputs(rows.features, embeddings), scales.inputs(extra.features, others_embeddings)

    lines = earlier(stages.earlier_unseen(own, rows, folds), rows)
    unseen = stages.judged_unseen(own, rows, folds, others, extra)
    card, ours = carded(unseen, rows)
    print(overview([*lines, *ours], rows, folds >= 0))
    print(f"\nfolds on which no setting was chosen\n\n{overview([*lines, *ours], rows, ~np.isin(folds, CHOSEN_ON))}")
    for line in ours:
        print(f"\n{line.name}\n\n{measure.table(line.found, rows.labels, rows.sources, line.bands)}")
    if not options.dry:
        everything, usable = np.ones(len(rows.texts), dtype=bool), np.ones(len(extra.fold), dtype=bool)
        second = stages.second_stage(own, rows, everything)
        first = stages.first_stage(own, rows, everything, others=others, usable=usable, second=second)
        write(scales, first, second, card)


def earlier(unseen: stages.Unseen, rows: Rows) -> list[Line]:
    """What version 1 would say: windows and spans of every text, both stages calibrated apart."""
    first, found_first = calibrated(rows.worst(unseen.first, rows.earlier), rows)
    second, found_second = calibrated(rows.worst(unseen.second, rows.earlier), rows)
    lowest = min(band.clear for band in first.bands.values())
    alone = found_first.max(axis=1) < min(measure.settle(found_first, found_second, rows.labels), lowest)
    together = np.where(alone[:, None], found_first, found_second)
    return [
        Line("version 1, first stage", found_first, first.bands),
        Line("version 1, second stage for all", found_second, second.bands),
        Line("version 1", together, second.bands, alone),
    ]


def carded(unseen: stages.Unseen, rows: Rows) -> tuple[head.Card, list[Line]]:
    """Calibration and bands, and what the classifier would say with them."""
    mixed = MIX * unseen.second + (1 - MIX) * unseen.first
    first, found_first = calibrated(rows.worst(unseen.first), rows)
    both, found_both = calibrated(rows.worst(mixed), rows)
    card = head.Card(head.FORMAT, VERSION, first, both, MIX, LOW, HIGH)
    for _ in range(2):
        # Bands say what gets a second look, and what is found with it says what the bands are.
        found, alone = cascaded(card, unseen.first, mixed, rows)
        bands = bands_of(found, rows)
        card = msgspec.structs.replace(card, sentences=msgspec.structs.replace(both, bands=bands))
    found, alone = cascaded(card, unseen.first, mixed, rows)
    return card, [
        Line(f"version {VERSION}, first stage", found_first, first.bands),
        Line(f"version {VERSION}, both stages for all", found_both, both.bands),
        Line(f"version {VERSION}", found, card.sentences.bands, alone),
    ]


def cascaded(card: head.Card, first: np.ndarray, mixed: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """What the classifier says of texts, by the scores of their pieces; and which it says without the encoder."""
    owner = rows.owner[rows.judged]
    found = probabilities(card.words, first[rows.judged])
    seen = look_again(found, owner, card, lambda some: probabilities(card.sentences, mixed[rows.judged][some]))
    worst = np.zeros((len(rows.examples), len(CATEGORIES)))
    np.maximum.at(worst, owner, found)
    return worst, ~np.isin(np.arange(len(worst)), owner[seen])


def probabilities(stage: head.Stage, scores: np.ndarray) -> np.ndarray:
    squashed: np.ndarray = 1 / (1 + np.exp(-(scores * np.array(stage.slope) + np.array(stage.offset))))
    return squashed


def calibrated(scores: np.ndarray, rows: Rows) -> tuple[head.Stage, np.ndarray]:
    """How scores become probabilities, and which these are, by texts that the coefficients had not seen."""
    weights = np.where(np.isnan(rows.labels), 0.0, rows.base[:, None]) * np.where(rows.labels == 1, MISS, 1.0)
    slope, offset = fit.calibrate(scores, rows.labels, weights)
    stage = head.Stage(tuple(slope), tuple(offset), {})
    found = probabilities(stage, scores)
    return msgspec.structs.replace(stage, bands=bands_of(found, rows)), found


def bands_of(found: np.ndarray, rows: Rows) -> dict[str, head.Band]:
    return {
        name: measure.band(found[:, i], rows.labels[:, i], rows.everyday, most=MOST)
        for i, name in enumerate(CATEGORIES)
    }


def overview(lines: list[Line], rows: Rows, among: np.ndarray) -> str:
    """Markdown: what each way to judge is worth, by these texts."""
    told = [
        "| | mean AUROC | bad cleared | everyday held | long good held | settled by the first: all, everyday |",
        "|---|---|---|---|---|---|",
    ]
    labels, sources = rows.labels[among], [source for source, one in zip(rows.sources, among, strict=True) if one]
    everyday, long_good = rows.everyday[among], rows.long_good[among]
    for line in lines:
        found, settled = line.found[among], ""
        held = ~measure.cleared(found, line.bands)
        if line.alone is not None:
            settled = f"{line.alone[among].mean():.0%}, {line.alone[among][everyday].mean():.0%}"
        told.append(
            f"| {line.name} | {measure.mean_auroc(found, labels, sources):.4f} "
            f"| {measure.bad_cleared(found, labels, sources, line.bands):.1%} "
            f"| {held[everyday].mean():.1%} | {held[long_good].mean():.1%} | {settled} |"
        )
    return "\n".join(told)


def write(scales: stages.Scales, first: stages.First, second: fit.Fitted, card: head.Card) -> None:
    """The coefficients as the classifier reads them: scales and shares folded in, the large ones as integers."""
    linear, network, share = first.linear, first.network, stages.NETWORK_SHARE
    grams, grams_scale = _integers((1 - share) * linear.coefficients[:BUCKETS], axis=0)
    # The mean of vectors times a matrix is the mean of the products: a word is shipped as what it adds to hidden units.
    into = network.inner[: vectors.DIMENSIONS] / scales.words_spread
    inner, inner_scale = _integers(scales.words.vectors @ into, axis=1)
    width = len(scales.sentence_mean)
    sentence = second.coefficients[:width] / scales.sentence_spread[:, None]
    exact = {
        "grams_scale": grams_scale,
        "surface": (1 - share) * linear.coefficients[BUCKETS:],
        "bias": (1 - share) * linear.bias + share * network.bias,
        "inner_scale": inner_scale,
        "inner_surface": network.inner[vectors.DIMENSIONS :],
        "inner_bias": network.inner_bias - scales.words_mean @ into,
        "outer": share * network.outer,
        "sentence": sentence,
        "sentence_surface": second.coefficients[width:],
        "sentence_bias": second.bias - scales.sentence_mean @ sentence,
    }
    tensors = {"idf": scales.idf, "grams": grams, "words": scales.words.hashes, "inner": inner}
    tensors |= {name: held.astype(np.float32) for name, held in exact.items()}
    head.COEFFICIENTS.write_bytes(save({name: np.ascontiguousarray(held) for name, held in tensors.items()}))
    head.CARD.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def _integers(exact: np.ndarray, *, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """8-bit integers and what one of them is worth: one scale for each column (`axis` 0) or row (1)."""
    scale = np.maximum(np.abs(exact).max(axis=axis), 1e-9) / 127
    return np.rint(exact / np.expand_dims(scale, axis)).astype(np.int8), scale.astype(np.float32)


if __name__ == "__main__":
    main()
