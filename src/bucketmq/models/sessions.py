"""What sentence encoders share: a session of onnxruntime whose weights are handed over in memory, and texts of about
one length run together. What a graph computes and where its weights lie is each encoder's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketmq.errors import Unsupported

Run = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
"""Vectors of the texts of a batch, given their tokens and which of them count."""


def load_libraries() -> tuple[Any, Any]:
    """onnxruntime, and the class of tokenizers; `Unsupported` where they are not installed."""
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as missing:
        raise Unsupported(f"the sentence encoder needs {missing.name}: pip install 'bucketmq[encoder]'") from None
    return onnxruntime, Tokenizer


def open_session(onnxruntime: Any, graph: Path, weights: Mapping[str, NDArray[Any]], threads: int) -> Any:
    """The graph with its weights, ready to run."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # An idle session must not spin: executors share the cores with everything else.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(each) for each in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(graph.read_bytes(), options, providers=["CPUExecutionProvider"])


def in_batches(tokens: Sequence[Sequence[int]], run: Run, *, batch_tokens: int) -> NDArray[np.float32]:
    """One vector for each text. Texts of about one length run together, so that little is wasted on padding."""
    order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
    vectors: NDArray[np.float32] | None = None
    at = 0
    while at < len(order):
        # Sorted by length, so the last of a batch is the widest.
        size = 1
        while at + size < len(order) and (size + 1) * len(tokens[order[at + size]]) <= batch_tokens:
            size += 1
        chosen = order[at : at + size]
        ids = np.zeros((size, len(tokens[chosen[-1]])), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, i in enumerate(chosen):
            ids[row, : len(tokens[i])] = tokens[i]
            mask[row, : len(tokens[i])] = 1
        out = run(ids, mask)
        if vectors is None:
            vectors = np.empty((len(tokens), out.shape[1]), dtype=np.float32)
        vectors[chosen] = out
        at += size
    return vectors if vectors is not None else np.zeros((0, 0), dtype=np.float32)
