"""The parts of the embedded classifier: plain text, links, n-grams, the encoder's arithmetic."""

# ruff: noqa: RUF001  look-alike letters are the point

from __future__ import annotations

import re

import pytest

pytest.importorskip("numpy")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bucketmq.apps.moderation.classify import links, normalise
from bucketmq.apps.moderation.classify.embedded import ENCODED_MAX, look_again
from bucketmq.apps.moderation.classify.head import Band, Card, Floats, Head, Stage
from bucketmq.apps.moderation.classify.ngrams import BUCKETS, grams
from bucketmq.apps.moderation.classify.normalise import plain
from bucketmq.apps.moderation.classify.pieces import CHARS_MAX, PIECE_CHARS, PIECES_MAX, pieces
from bucketmq.apps.moderation.classify.surface import NAMES
from bucketmq.apps.moderation.record import CATEGORIES
from bucketmq.models import minilm


@pytest.mark.parametrize(
    ("written", "read", "sign"),
    [
        ("I will k1ll y0u", "i will kill you", normalise.DIGITS),
        ("W0men are 5cum", "women are scum", normalise.DIGITS),
        ("k i l l yourself", "kill yourself", normalise.SPACED),
        ("f.u.c.k this", "fuck this", normalise.SPACED),
        ("k\u200bi\u200bll", "kill", normalise.HIDDEN),
        ("sсаm", "scam", normalise.LOOKALIKES),
        ("🅺🅸🅻🅻", "kill", None),
        ("ｓｃａｍ", "scam", None),
        ("Z̴̡̛a̷͜l̶̢͝g̵o̷", "zalgo", normalise.MARKS),
        ("café", "cafe", None),
        ("fish &amp; chips", "fish & chips", None),
        ("f*ck", "f*ck", normalise.MASKED),
        ("\u202eabc", "abc", normalise.OVERRIDES),
        ("hi @some_body99", "hi @user", None),
    ],
)
def test_a_text_is_read_as_people_read_it(written: str, read: str, sign: str | None) -> None:
    made = plain(written)
    assert made.text == read
    assert made.signs == ((sign,) if sign else ())


@pytest.mark.parametrize(
    "text",
    [
        "see you at 3pm on the 1st",
        "covid19 and h1n1 and mp3",
        "the u.s. economy",
        "call 08452810075 or pay £1000",
        "mail me: bob@example.com",
        "gr8, c u b4 8",
        "привет, как дела",
        "plan a - b - c",
    ],
)
def test_ordinary_writing_is_left_alone(text: str) -> None:
    made = plain(text)
    assert made.text == text
    assert made.signs == ()


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_plain_text_is_settled(text: str) -> None:
    made = plain(text)
    assert made.text == made.text.strip()
    assert "\u200b" not in made.text
    assert "\x00" not in made.text


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("look: http://bit.ly/abc", links.SHORTENED),
        ("look: https://xn--pypal-4ve.example/", links.PUNYCODE),
        ("look: http://192.0.2.7/x", links.NUMERIC),
        ("look: https://bank.example@evil.example/", links.CREDENTIALS),
        ("verify your account at https://a.example/login", links.BAIT),
        ("http://a.example http://b.example http://c.example http://d.example", links.MANY),
        ("javascript:document.write('script')", links.DANGEROUS),
    ],
)
def test_a_suspicious_link_is_named(text: str, sign: str) -> None:
    assert sign in links.links(text).signs


@pytest.mark.parametrize("text", ["去死", "殺す!", "убью", "죽어 👍", "杀了你 @some_body99 https://example.org/a"])
def test_a_short_text_in_another_script_cannot_be_read_either(text: str) -> None:
    assert "in a script this model cannot read" in pieces(text).doubts


@pytest.mark.parametrize("text", ["the number π", "made in 日本 by friends of ours", "👍", "100 %"])
def test_a_few_foreign_letters_or_none_can_be_read(text: str) -> None:
    assert pieces(text).doubts == ()


def test_an_ordinary_link_is_a_word() -> None:
    found = links.links("slides at https://example.org/talk.pdf and more")
    assert found.count == 1
    assert found.signs == ()
    assert "example.org" not in found.text
    assert links.links("no links here. none.").count == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_ngrams_of_a_text_do_not_depend_on_its_neighbours(texts: list[str]) -> None:
    together = grams(texts)
    for i, text in enumerate(texts):
        alone = grams([text])
        assert together.buckets[together.starts[i] : together.starts[i + 1]].tolist() == alone.buckets.tolist()
        assert all(0 <= each < BUCKETS for each in alone.buckets.tolist())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(alphabet="ab '.1é", max_size=30), min_size=1, max_size=5))
def test_words_of_a_text_do_not_depend_on_where_they_stand(texts: list[str]) -> None:
    together = grams(texts)
    for i, text in enumerate(texts):
        words = re.findall("[ab'1é]+", text)
        alone = [int(grams([word]).words[0]) for word in words]
        assert together.words[together.word_starts[i] : together.word_starts[i + 1]].tolist() == alone


def test_ngrams_are_the_ones_the_coefficients_belong_to() -> None:
    """Changing the hash would make the shipped coefficients noise."""
    assert grams(["hi you"]).buckets.tolist()[:8] == [1553, 3854, 7311, 8951, 14447, 23168, 34227, 36732]


CARD = Card(
    2,
    "test",
    Stage((1.0,) * 6, (0.0,) * 6, {}),
    Stage((1.0,) * 6, (0.0,) * 6, {name: Band(0.2, 0.8) for name in CATEGORIES}),
    mix=0.5,
    low=0.5,
    high=0.97,
)


def looked_at(*posts: list[float], better: float = 0.0) -> list[int]:
    """Which pieces get a second look, by the first stage's probabilities of spam; the second one's is `better`."""
    spam = CATEGORIES.index("spam")
    found = np.zeros((sum(map(len, posts)), len(CATEGORIES)), dtype=np.float32)
    found[:, spam] = [each for post in posts for each in post]
    owner = np.repeat(np.arange(len(posts)), [len(post) for post in posts])

    def judge(rows: NDArray[np.int64]) -> Floats:
        again = np.zeros((len(rows), len(CATEGORIES)), dtype=np.float32)
        again[:, spam] = better
        return again

    seen = look_again(found, owner, CARD, judge)
    assert (found[seen, spam] == np.float32(better)).all()
    return np.flatnonzero(seen).tolist()


def test_a_piece_of_which_the_first_stage_is_sure_gets_no_second_look() -> None:
    assert looked_at([0.09], [0.11], [0.98]) == [1]
    assert looked_at() == []


def test_of_one_post_the_two_worst_pieces_get_a_second_look() -> None:
    assert looked_at([0.3, 0.0, 0.5, 0.4], [0.2], [0.6, 0.6, 0.6]) == [2, 3, 4, 5, 6]


def test_a_post_with_one_certain_piece_needs_no_second_look_at_the_others() -> None:
    assert looked_at([0.4, 0.99, 0.5], [0.4]) == [3]


def test_a_post_that_the_second_look_flags_is_not_looked_at_again() -> None:
    assert looked_at([0.3, 0.5, 0.4], [0.3, 0.25], better=0.81) == [1, 3]
    assert looked_at([0.3, 0.5, 0.4], [0.3, 0.25], better=0.79) == [1, 2, 3, 4]


@given(st.lists(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=5), max_size=6))
def test_no_post_is_looked_at_more_than_it_may_be_and_none_below_half_of_clear(posts: list[list[float]]) -> None:
    looked = looked_at(*posts)
    owner = [at for at, post in enumerate(posts) for _ in post]
    flat = [each for post in posts for each in post]
    assert all(np.float32(flat[each]) / np.float32(0.2) >= 0.5 for each in looked)
    for at, post in enumerate(posts):
        unsure = sum(np.float32(each) / np.float32(0.2) >= 0.5 for each in post)
        certain = max(post) >= np.float32(0.97)
        assert sum(owner[each] == at for each in looked) == (0 if certain else min(ENCODED_MAX, unsure))


def test_words_without_a_vector_and_texts_without_words_are_scored() -> None:
    head = Head.load()
    texts = ["", "...", "qzxqzxqzx", "hello there"]
    scores = head.score_words(grams(texts), np.zeros((4, len(NAMES)), dtype=np.float32))
    assert scores.shape == (4, len(CATEGORIES)) and np.isfinite(scores).all()
    for at, text in enumerate(texts):
        alone = head.score_words(grams([text]), np.zeros((1, len(NAMES)), dtype=np.float32))
        assert scores[at] == pytest.approx(alone[0], abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=3000))
def test_pieces_are_bounded(text: str) -> None:
    cut = pieces(text)
    assert 1 <= len(cut.texts) <= PIECES_MAX
    assert all(len(each) <= PIECE_CHARS for each in cut.texts)


def test_of_a_long_text_both_ends_are_looked_at() -> None:
    cut = pieces("the beginning " + "middle " * CHARS_MAX + " the finish")
    assert "beginning" in cut.texts[0]
    assert any("finish" in each for each in cut.texts)
    assert cut.doubts


def test_a_hundred_kilobytes_of_anything_take_no_time_worth_mentioning() -> None:
    """Every pattern is linear: what would hang a moderator is a way past it."""
    for unit in ("a ", "@", "http://", "1", "a1", "a.", "*", "=", "\u0301", "<", "aaaa", "k i ", "{"):
        pieces(unit * (100_000 // len(unit)))


@pytest.mark.skipif(minilm.find() is None, reason="the weights of the second stage are not installed")
def test_the_encoder_computes_what_its_weights_say() -> None:
    """Against the same network written out in numpy with exact weights: rounding to integers may cost a little only."""
    folder = minilm.find()
    assert folder is not None
    texts = ["how do i kill a process", "the weather is lovely by the lake today", "x"]
    ours = minilm.Encoder(folder).encode(texts)[:, 768:1152]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tensors = minilm._safetensors(folder / "model.safetensors")
    for text, vector in zip(texts, ours, strict=True):
        exact = _forward(tensors, tokenizer.encode(text).ids)
        assert float(vector @ exact / np.linalg.norm(vector) / np.linalg.norm(exact)) > 0.95


def _forward(tensors: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        return (
            centred / np.sqrt(centred.var(axis=-1, keepdims=True) + 1e-12) * tensors[name + ".weight"]
            + tensors[name + ".bias"]
        )

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]

    def erf(x: np.ndarray) -> np.ndarray:
        from math import erf as one

        return np.vectorize(one)(x)

    e = "embeddings."
    x = tensors[e + "word_embeddings.weight"][ids] + tensors[e + "position_embeddings.weight"][: len(ids)]
    x = norm(x + tensors[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
    for layer in range(6):
        at = f"encoder.layer.{layer}."
        q, k, v = (
            dense(x, f"{at}attention.self.{name}").reshape(len(ids), 12, 32).transpose(1, 0, 2)
            for name in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(32)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (weights / weights.sum(axis=-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), 384)
        x = norm(x + dense(mixed, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        up = dense(x, at + "intermediate.dense")
        x = norm(x + dense(up * 0.5 * (1 + erf(up / np.sqrt(2))), at + "output.dense"), at + "output.LayerNorm")
    return x.mean(axis=0)
