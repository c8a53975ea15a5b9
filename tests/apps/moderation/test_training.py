"""The training of the embedded model: what it learns from whom, and that the classifier computes what was trained."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scipy")

import numpy as np

from bucketmq.apps.moderation.classify import head
from bucketmq.apps.moderation.classify.ngrams import BUCKETS, grams
from bucketmq.apps.moderation.classify.pieces import PIECE_CHARS
from bucketmq.apps.moderation.classify.surface import NAMES
from bucketmq.apps.moderation.record import CATEGORIES
from training.moderation import __main__ as training
from training.moderation import data, fit, stages
from training.moderation.rows import LONG_CHARS, Rows, features
from training.moderation.unlabelled import ALL_FOLDS, Unlabelled
from training.moderation.vectors import Words

NONE = data.labels()
TEXTS = (
    "the cat sat on the mat and looked at the rain",
    "two eggs and a cup of flour make a fine pancake",
    "our train was late again but nobody minded much",
    "the library opens at nine on every second saturday",
)


def examples(*texts: str) -> list[data.Example]:
    return [data.Example(text, NONE, "davidson", "neither") for text in texts]


def test_what_is_made_from_an_example_stays_in_its_fold() -> None:
    extra = Unlabelled(examples(*TEXTS), np.array([0, 1, 0, 1]), [])
    words = [{word for text in TEXTS[fold::2] for word in text.split()} for fold in (0, 1)]
    assert len(extra.fold) >= len(TEXTS)
    for text, fold in zip(extra.features.texts, extra.fold.tolist(), strict=True):
        assert set(text.split()) <= words[fold]


def test_a_near_copy_of_an_example_is_not_learnt_from() -> None:
    copy, other = TEXTS[0] + " today", "completely different things happen in the harbour at night"
    extra = Unlabelled(examples(*TEXTS), np.array([0, 1, 2, 3]), examples(copy, other))
    assert extra.fresh == [other]
    assert (extra.fold == ALL_FOLDS).sum() == 1


def test_a_long_text_is_learnt_by_its_windows_and_judged_by_its_spans() -> None:
    long = " ".join(f"On day {day} the weather by the lake was lovely." for day in range(30))
    rows = Rows(examples(long, TEXTS[0]))
    sizes = np.array([len(text) for text in rows.texts])
    windows = (sizes > LONG_CHARS) | (rows.owner == 1)
    assert ((rows.share > 0) == windows).all()
    assert (rows.judged == (sizes <= PIECE_CHARS)).all()
    assert (rows.earlier & ~windows).any() and rows.earlier[windows].all(), "version 1 judged windows and spans"
    assert np.bincount(rows.owner, rows.share).tolist() == pytest.approx([1, 1])


def test_soft_weights_of_plain_labels_are_those_of_labels() -> None:
    labels, base = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([1.0, 2.0, 0.5, 1.0])
    target, weights = fit.softly_weighted(labels, base, balance=0.5)
    assert target == pytest.approx(labels)
    assert weights == pytest.approx(fit.weights_for(labels, base, balance=0.5))


def test_a_network_learns_what_no_linear_model_can_and_again_the_same() -> None:
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=np.float32).repeat(64, axis=0)
    either = (corners.sum(axis=1) == 1).astype(float)[:, None]

    def fitted() -> fit.Network:
        ones = np.ones_like(either)
        return fit.network(corners, either, ones, hidden=8, decay=0, rate=0.05, epochs=200, seed=1)

    network = fitted()
    assert ((network.scores(corners) > 0) == (either == 1)).all()
    assert network.inner.tolist() == fitted().inner.tolist()


def test_networks_side_by_side_say_what_each_says_on_average() -> None:
    chance = np.random.default_rng(4)

    def made() -> fit.Network:
        shapes = ((5, 3), (3,), (3, 2), (2,))
        return fit.Network(*(chance.normal(size=shape).astype(np.float32) for shape in shapes))

    one, other = made(), made()
    texts = chance.normal(size=(6, 5)).astype(np.float32)
    expected = (one.scores(texts) + other.scores(texts)) / 2
    assert fit.Network.averaged([one, other]).scores(texts) == pytest.approx(expected, abs=1e-5)


def test_no_text_is_made_twice() -> None:
    extra = Unlabelled(examples(*TEXTS), np.array([0, 1, 0, 1]), [])
    pairs = list(zip(extra.features.texts, extra.fold.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) > 2 * len(TEXTS)


def test_the_classifier_computes_what_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales and shares are folded into the shipped coefficients, and the large ones are rounded to integers."""
    chance = np.random.default_rng(3)

    def some(*shape: int) -> np.ndarray:
        return chance.uniform(-1, 1, shape).astype(np.float32)

    texts = [*TEXTS, "words nobody knows", ""]
    known = np.unique(grams(list(TEXTS)).words)
    found = features(texts, np.abs(some(len(texts), len(NAMES))))
    embeddings = some(len(texts), 12)
    scales = stages.Scales.of(found, embeddings, Words(known, some(len(known), 256)))
    network = fit.Network(some(256 + len(NAMES), 16), some(16), some(16, len(CATEGORIES)), some(len(CATEGORIES)))
    linear = fit.Fitted(some(BUCKETS + len(NAMES), len(CATEGORIES)), some(len(CATEGORIES)))
    second = fit.Fitted(some(12 + len(NAMES), len(CATEGORIES)), some(len(CATEGORIES)))
    stage = head.Stage((1.0,) * 6, (0.0,) * 6, {})
    monkeypatch.setattr(head, "COEFFICIENTS", tmp_path / "embedded.safetensors")
    monkeypatch.setattr(head, "CARD", tmp_path / "embedded.json")
    first = stages.First(linear, network)
    training.write(scales, first, second, head.Card(head.FORMAT, "test", stage, stage, 0.25, 0.5, 0.97))

    loaded = head.Head.load(head.COEFFICIENTS, head.CARD)
    own = scales.inputs(found, embeddings)
    scores = loaded.score_words(grams(texts), found.surface)
    assert scores == pytest.approx(first.scores(own), rel=0.02, abs=0.1)
    mixed = loaded.score_sentences(embeddings, scores, found.surface)
    assert mixed == pytest.approx(0.25 * second.scores(own.sentences) + 0.75 * scores, rel=1e-3, abs=1e-3)
